#include "engine/ops/peak.h"

#include <algorithm>
#include <chrono>

#include "engine/core/amx.h"
#include "engine/core/cpu.h"
#include "engine/core/memory.h"
#include "engine/ops/cpu/peak.h"
#include "engine/ops/pick_kernel.h"

namespace trireme {
namespace {

constexpr int kRuns = 6;
constexpr int kReadRuns = 3;
constexpr double kRunSeconds = 0.012;
constexpr int64_t kReadBytes = int64_t{256} << 20;  // more than a core's share of the last cache

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Loop>
double best_gflops(Loop&& loop, int threads) {
  cpu::PeakLoop run;
  run.rounds = 1'000'000;
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    loop(run, threads);
    const double seconds = seconds_since(start);
    best = std::max(best, run.operations / seconds * 1e-9);
    // Long against waking the team, short against what disturbs it.
    if (seconds < kRunSeconds) run.rounds *= 2;
  }
  return best;
}

double best_read_gbytes(int threads) {
  const Buffer buffer("bandwidth measurement", kReadBytes);
  buffer.touch(threads);
  const auto* data = buffer.tensor(DType::kF32, {kReadBytes / 4}).as<float>();
  double best = 0;
  float sink = 0;
  for (int i = 0; i < kReadRuns; ++i)
    for (const int streams : {1, 4, 8}) {
      const auto start = std::chrono::steady_clock::now();
      TRIREME_KERNEL(read_loop<float>)(data, kReadBytes / 4, streams, sink, threads);
      best = std::max(best, static_cast<double>(kReadBytes) / seconds_since(start) * 1e-9);
    }
  TRIREME_CHECK(sink == 0.0f, "fresh memory sums to ", static_cast<double>(sink));
  return best;
}

}  // namespace

MachinePeak measure_peak(int threads, bool with_memory) {
  TRIREME_CHECK(threads >= 1, "measure_peak with ", threads, " threads");
  MachinePeak peak;
  peak.threads = threads;
  peak.float32_gflops = best_gflops(TRIREME_KERNEL(multiply_add_loop<float>), threads);
  // Widened numbers are multiplied by float32 instructions, which some processors do faster.
  peak.bfloat16_gflops = peak.float32_gflops;
  if (cpu_has_avx512_bf16())
    peak.bfloat16_gflops = std::max(peak.bfloat16_gflops,
                                    best_gflops(TRIREME_KERNEL(multiply_add_loop<bf16>), threads));
#if TRIREME_BUILT_AVX512
  if (active_isa() == Isa::kAvx512 && may_use_amx_bf16())
    peak.bfloat16_gflops =
        std::max(peak.bfloat16_gflops, best_gflops(cpu::avx512::tile_product_loop, threads));
#endif
  if (with_memory) peak.read_gbytes = best_read_gbytes(threads);
  return peak;
}

void raise_peak(MachinePeak& peak, const MachinePeak& other) {
  peak.float32_gflops = std::max(peak.float32_gflops, other.float32_gflops);
  peak.bfloat16_gflops = std::max(peak.bfloat16_gflops, other.bfloat16_gflops);
  peak.read_gbytes = std::max(peak.read_gbytes, other.read_gbytes);
}

}  // namespace trireme
