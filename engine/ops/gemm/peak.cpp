#include "engine/ops/gemm/peak.h"

#include <algorithm>
#include <chrono>

#include "engine/core/amx.h"
#include "engine/core/cpu.h"
#include "engine/core/memory.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/gemm/peak.cpu.h"

namespace trireme {
namespace {

constexpr int kRuns = 6;
constexpr int kReadRuns = 3;
constexpr double kRunSeconds = 0.012;
// Beside other processes each run of kRunSeconds is disturbed, but not each short one.
constexpr int kShortRuns = 24;
constexpr double kShortRunSeconds = 4e-4;
constexpr int64_t kMinRunBytes = int64_t{32} << 20;  // per run: long compared to waking the team

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Loop>
double best_gflops(Loop&& loop, int threads) {
  cpu::PeakLoop run;
  run.rounds = 1'000'000;
  double best = 0, per_round = 0;  // operations per second, operations of a round
  const auto seconds_of_run = [&] {
    const auto start = std::chrono::steady_clock::now();
    loop(run, threads);
    const double seconds = seconds_since(start);
    best = std::max(best, run.operations / seconds);
    per_round = run.operations / static_cast<double>(run.rounds);
    return seconds;
  };
  for (int i = 0; i < kRuns; ++i)
    if (seconds_of_run() < kRunSeconds) run.rounds *= 2;  // long compared to waking the team
  run.rounds = std::max<int64_t>(1, static_cast<int64_t>(best * kShortRunSeconds / per_round));
  for (int i = 0; i < kShortRuns; ++i) seconds_of_run();
  return best * 1e-9;
}

// GB/s (1e9 bytes) of the best of several runs of pass(streams), which moves `bytes`.
template <class Pass>
double best_gbytes(int64_t bytes, std::initializer_list<int> streams, Pass&& pass) {
  const int64_t times = ceil_div(kMinRunBytes, bytes);
  double best = 0;
  for (int i = 0; i < kReadRuns; ++i)
    for (const int count : streams) {
      const auto start = std::chrono::steady_clock::now();
      for (int64_t t = 0; t < times; ++t) pass(count);
      best = std::max(best, static_cast<double>(times * bytes) / seconds_since(start) * 1e-9);
    }
  return best;
}

void measure_memory(MachinePeak& peak) {
  const int64_t largest = MachinePeak::kMinReadBytes << (MachinePeak::kReadSizes - 1);
  const Buffer buffer("bandwidth measurement", largest);
  buffer.touch(peak.threads);
  auto* const data = buffer.tensor(DType::kF32, {largest / 4}).as<float>();
  float sink = 0;
  for (size_t i = 0; i < MachinePeak::kReadSizes; ++i) {
    const int64_t bytes = MachinePeak::kMinReadBytes << i;
    peak.read_gbytes[i] = best_gbytes(bytes, {1, 4, 8}, [&](int streams) {
      TRIREME_KERNEL(read_loop<float>)(data, bytes / 4, streams, sink, peak.threads);
    });
    peak.update_gbytes[i] = best_gbytes(2 * bytes, {1, 4}, [&](int streams) {
      TRIREME_KERNEL(halve_loop<float>)(data, bytes / 4, streams, peak.threads);
    });
  }
  TRIREME_CHECK(sink == 0.0f, "fresh memory sums to ", static_cast<double>(sink));
}

size_t size_at(double bytes) {
  size_t at = 0;
  while (at + 1 < MachinePeak::kReadSizes &&
         static_cast<double>(MachinePeak::kMinReadBytes << (at + 1)) <= bytes)
    ++at;
  return at;
}

}  // namespace

double MachinePeak::reading_gbytes(double bytes) const { return read_gbytes[size_at(bytes)]; }

double MachinePeak::moving_gbytes(double bytes) const {
  const size_t at = size_at(bytes / 2);
  return std::max(read_gbytes[at], update_gbytes[at]);
}

MachinePeak measure_peak(int threads, bool with_memory) {
  TRIREME_CHECK(threads >= 1, "measure_peak with ", threads, " threads");
  MachinePeak peak;
  peak.threads = threads;
  peak.float32_gflops = best_gflops(TRIREME_KERNEL(multiply_add_loop<float>), threads);
  // Widened numbers are multiplied by float32 instructions, which are faster on some processors.
  peak.bfloat16_gflops = peak.float32_gflops;
  if (cpu_has_avx512_bf16())
    peak.bfloat16_gflops = std::max(peak.bfloat16_gflops,
                                    best_gflops(TRIREME_KERNEL(multiply_add_loop<bf16>), threads));
#if TRIREME_BUILT_AVX512
  if (active_isa() == Isa::kAvx512 && may_use_amx_bf16())
    peak.bfloat16_gflops =
        std::max(peak.bfloat16_gflops, best_gflops(cpu::avx512::tile_product_loop, threads));
#endif
  if (with_memory) measure_memory(peak);
  return peak;
}

void raise_peak(MachinePeak& peak, const MachinePeak& other) {
  peak.float32_gflops = std::max(peak.float32_gflops, other.float32_gflops);
  peak.bfloat16_gflops = std::max(peak.bfloat16_gflops, other.bfloat16_gflops);
  for (size_t i = 0; i < peak.read_gbytes.size(); ++i) {
    peak.read_gbytes[i] = std::max(peak.read_gbytes[i], other.read_gbytes[i]);
    peak.update_gbytes[i] = std::max(peak.update_gbytes[i], other.update_gbytes[i]);
  }
}

}  // namespace trireme
