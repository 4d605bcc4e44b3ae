#include "engine/ops/gemm/device_peak.h"

#include <algorithm>

#include "engine/device/timing.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

constexpr int kSamples = 7;
constexpr int64_t kMatricesOfCopy = 16;

double median_of(Ctx& ctx, const std::function<void()>& call) {
  device_seconds(ctx, 2, call);
  std::vector<double> seconds;
  seconds.reserve(kSamples);
  for (int i = 0; i < kSamples; ++i) seconds.push_back(device_seconds(ctx, 3, call) / 3);
  std::ranges::nth_element(seconds, seconds.begin() + kSamples / 2);
  return seconds[kSamples / 2];
}

// Finalizer of splitmix64 (Steele et al. 2014).
uint64_t scatter(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

double device_seconds(Ctx& ctx, int64_t calls, const std::function<void()>& call) {
  TRIREME_CHECK(ctx.gpu != nullptr, "device_seconds() needs a GPU");
  const cuda::Event begin = cuda::make_timing_event(*ctx.gpu);
  const cuda::Event end = cuda::make_timing_event(*ctx.gpu);
  cuda::record(begin, ctx.gpu->main);
  for (int64_t i = 0; i < calls; ++i) call();
  cuda::record(end, ctx.gpu->main);
  return cuda::seconds_between(begin, end);
}

void fill_noise(Ctx& ctx, const Tensor& t, uint64_t seed) {
  const Tensor flat = t.reshape({t.numel()});
  fill_from_host(ctx, flat, [&](const Tensor& part, int64_t first) {
    dispatch_float("fill_noise", part.dtype(), [&]<class T>() {
      T* out = part.as<T>();
#pragma omp parallel for schedule(static) num_threads(ctx.threads)
      for (int64_t i = 0; i < part.numel(); ++i) {
        const uint64_t at = (seed << 40) + static_cast<uint64_t>(first + i) + 1;
        const auto word = static_cast<uint32_t>(scatter(at * 0x9e3779b97f4a7c15u) >> 32);
        out[i] = T(uniform_from_word(word) - 0.5f);
      }
    });
  });
}

DevicePeak measure_device_peak(Ctx& ctx, DType dtype, int64_t side) {
  TRIREME_CHECK(ctx.gpu != nullptr, "measure_device_peak() needs a GPU");
  DevicePeak peak{.dtype = dtype, .side = side};
  peak.nominal_tflops = cuda::nominal_tflops(ctx.gpu->info, dtype);
  const double n = static_cast<double>(side);
  {
    const int64_t bytes = side * side * dtype_size(dtype);
    std::array<Buffer, 3> memory;
    std::array<Tensor, 3> m;
    for (size_t i = 0; i < memory.size(); ++i) {
      memory[i] = Buffer("peak", bytes, ctx.memory());
      m[i] = memory[i].tensor(dtype, {side, side});
      fill_noise(ctx, m[i], i);
    }
    const double seconds = median_of(ctx, [&] { linear_forward(ctx, m[2], m[0], m[1], {}); });
    peak.gemm_tflops = 2 * n * n * n / seconds * 1e-12;
  }
  {
    const int64_t bytes = kMatricesOfCopy * side * side * 2;
    const Buffer from("peak", bytes, ctx.memory()), to("peak", bytes, ctx.memory());
    fill_noise(ctx, from.tensor(DType::kF32, {bytes / 4}), 3);
    const double seconds = median_of(
        ctx, [&] { cuda::copy_async(*ctx.gpu, ctx.gpu->main, to.data(), from.data(), bytes); });
    peak.copy_gbytes = 2 * static_cast<double>(bytes) / seconds * 1e-9;
  }
  return peak;
}

}  // namespace trireme
