// Measured peaks of the host's CPU, the denominators of "% of peak" and of MFU in runs on the CPU.
// For GPUs: engine/ops/gemm/device_peak.h; training's MFU there uses the nominal peak.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {

struct MachinePeak {
  int threads = 0;
  // Multiply-adds on registers by all threads, 2 operations each. They are fused only if the
  // compiler contracts them (engine/ops/CMakeLists.txt).
  double float32_gflops = 0;
  // Products of bfloat16 with float32 sums, by the fastest of AMX tiles, AVX-512 dot products and
  // float32 multiply-adds of widened numbers.
  double bfloat16_gflops = 0;
  // GB/s (1e9 bytes) of reading kMinReadBytes << i bytes repeatedly, with the best number of
  // streams: the caches' rates, and at the end memory's (if no cache has 256 MiB).
  static constexpr int64_t kMinReadBytes = int64_t{256} << 10;
  static constexpr int kReadSizes = 11;
  std::array<double, kReadSizes> read_gbytes = {};

  // The same for updating them in place: each byte is read and written, and counted twice.
  std::array<double, kReadSizes> update_gbytes = {};

  double memory_gbytes() const { return read_gbytes.back(); }
  // GB/s of reading `bytes` repeatedly: that of the largest measured size up to `bytes`, or of the
  // smallest measured.
  double reading_gbytes(double bytes) const;
  // GB/s of an op that moves `bytes` (read plus written), and so uses at least bytes / 2 of memory:
  // the better of the reading and updating rates measured at bytes / 2.
  double moving_gbytes(double bytes) const;
};

// Takes about a second. Each number is the best of several short runs: other load on the machine
// can only make a run slower. with_memory: also the memory rates, which need 256 MiB; else they are
// 0.
MachinePeak measure_peak(int threads, bool with_memory = true);

// Raises each number of `peak` to that of `other`: measurements spread over a long run find the
// peak even if other work occupied the machine for a while.
void raise_peak(MachinePeak& peak, const MachinePeak& other);

}  // namespace trireme
