// Ceilings of this machine, measured: the denominators of "% of peak" and of MFU.
#pragma once

#include <cstdint>

namespace trireme {

struct MachinePeak {
  int threads = 0;
  double float32_gflops = 0;  // fused multiply-adds on registers, 2 operations each
  // Products of bfloat16 with float32 sums, by the fastest of AMX tiles, AVX-512 dot products and
  // float32 multiply-adds of widened numbers.
  double bfloat16_gflops = 0;
  double read_gbytes = 0;  // GB/s (1e9 bytes) read from memory, by the best number of streams
};

// Takes about half a second. Each number is the best of several short runs: whatever else runs on
// the machine can only make a run slower. with_memory: also read_gbytes, which takes 256 MiB; else
// it is 0.
MachinePeak measure_peak(int threads, bool with_memory = true);

// Raises each number of `peak` to that of `other`: tries that are spread over a long run find the
// ceiling even where something else took the machine for a while.
void raise_peak(MachinePeak& peak, const MachinePeak& other);

}  // namespace trireme
