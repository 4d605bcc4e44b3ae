// Measured peak of a GPU: denominators next to the vendor's nominal one (nominal_tflops() of
// engine/device/context.h).
#pragma once

#include "engine/ops/context.h"

namespace trireme {

struct DevicePeak {
  DType dtype = DType::kBF16;  // of the product's matrices
  int64_t side = 0;            // of these square matrices
  double gemm_tflops = 0;      // C = A B^T of random matrices, by linear_forward()
  double copy_gbytes = 0;      // GB/s of a copy within the device: bytes read plus bytes written
  double nominal_tflops = 0;   // 0: unknown
};

// Measures the median of several products of side x side matrices, and of several copies of 16 such
// matrices of 16-bit elements: 2 GiB at kPeakSide. Allocates and frees the memory. Error if ctx is
// not on a GPU.
inline constexpr int64_t kPeakSide = 8192;
DevicePeak measure_device_peak(Ctx& ctx, DType dtype, int64_t side = kPeakSide);

// Device time, in seconds, of `calls` calls in total, between two events of the main stream. Error
// if ctx is not on a GPU.
double device_seconds(Ctx& ctx, int64_t calls, const std::function<void()>& call);

// Fills a float tensor on any device with pseudo-random numbers from [-0.5, 0.5): the speed of a
// GPU depends on how many bits change.
void fill_noise(Ctx& ctx, const Tensor& t, uint64_t seed);

}  // namespace trireme
