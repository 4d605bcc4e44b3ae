#include "commands/bench_support.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "engine/core/cpu.h"
#include "engine/ops/gemm.h"

namespace trireme {

std::vector<DType> BenchOptions::dtypes() const {
  if (dtype == "all") return {DType::kF32, DType::kBF16};
  return {dtype == "float32" ? DType::kF32 : DType::kBF16};
}

void add_bench_options(CLI::App& app, BenchOptions& options) {
  app.add_option("--dtype", options.dtype, "Element type of the operands")
      ->check(CLI::IsMember({"float32", "bfloat16", "all"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "OpenMP threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--samples", options.samples, "Timed samples; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON instead of a table");
}

Tensor Operands::zeros(DType dtype, const Shape& shape) {
  const int64_t bytes = checked_mul(shape.numel(), dtype_size(dtype));
  buffers_.emplace_back("bench operand", std::max<int64_t>(1, bytes));
  buffers_.back().touch(1);
  return buffers_.back().tensor(dtype, shape);
}

Tensor Operands::make(DType dtype, const Shape& shape) {
  const Tensor t = zeros(dtype, shape);
  dispatch_float("bench", dtype, [&]<class T>() {
    T* out = t.as<T>();
    for (int64_t i = 0; i < t.numel(); ++i)
      out[i] = T(uniform_from_word(static_cast<uint32_t>(i) * 2654435761u) - 0.5f);
  });
  return t;
}

Tensor Operands::ids(const Shape& shape, int64_t below) {
  const Tensor t = zeros(DType::kI32, shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.as<int32_t>()[i] = static_cast<int32_t>((i * 2654435761) % below);
  return t;
}

double median_seconds(Ctx& ctx, int samples, double sample_seconds,
                      const std::function<void()>& call) {
  ctx.arena.begin_planning();
  call();
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  const auto time = [&](int64_t calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      ctx.arena.begin_step(plan);
      call();
      ctx.arena.end_step();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  time(1);
  const double once = std::max(1e-9, time(1));
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(sample_seconds / once));
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(samples));
  for (int i = 0; i < samples; ++i) seconds.push_back(time(calls) / static_cast<double>(calls));
  std::ranges::nth_element(seconds, seconds.begin() + samples / 2);
  return seconds[static_cast<size_t>(samples) / 2];
}

MachinePeak prepare_bench(int threads) {
  const int team = threads > 0 ? threads : available_cores();
  pin_team(0, team);
  return measure_peak(team);
}

std::string peak_line(const MachinePeak& peak) {
  char text[256];
  std::snprintf(text, sizeof text,
                "measured peak: float32 %.1f GFLOP/s, bfloat16 %.1f GFLOP/s, memory %.1f GB/s",
                peak.float32_gflops, peak.bfloat16_gflops, peak.read_gbytes);
  return concat(cpu_model_name(), ", ", peak.threads, " threads, ", isa_name(active_isa()), ", ",
                gemm_library_version(), "\n", text, "\n");
}

}  // namespace trireme
