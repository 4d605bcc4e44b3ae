#include "commands/bench/bench_support.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands/bench/bench_models.h"
#include "commands/rank_options.h"
#include "engine/config/parse.h"
#include "engine/core/cpu.h"
#include "engine/io/hub_cache.h"
#include "engine/observe/log.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/load_config.h"

namespace trireme {

std::vector<DType> BenchOptions::dtypes() const {
  if (dtype == "all") return {DType::kF32, DType::kBF16};
  return {dtype == "float32" ? DType::kF32 : DType::kBF16};
}

void add_bench_options(CLI::App& app, BenchOptions& options) {
  app.add_option("--dtype", options.dtype, "Element type of the operands")
      ->check(CLI::IsMember({"float32", "bfloat16", "all"}))
      ->capture_default_str();
  add_device_option(app, options.device);
  app.add_option("--threads", options.threads, "OpenMP threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--samples", options.samples, "Timed samples; the result is their median")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_peak_option(app, options.peak_side);
  app.add_flag("--json", options.json, "Print JSON instead of a table");
}

void add_peak_option(CLI::App& app, int64_t& side) {
  app.add_option("--peak-side", side, "Side of the square matrices that measure a GPU's peak")
      ->check(CLI::Range(int64_t{16}, int64_t{65536}))
      ->capture_default_str();
}

std::unique_ptr<cuda::Context> open_bench_device(const std::string& device) {
  if (device == "cpu") return nullptr;
  if (device == "auto" && cuda::device_status().devices == 0) return nullptr;
  return cuda::open(0);
}

std::string bench_model_names() {
  std::string names;
  for (const ModelText& model : kModelTexts) names += concat(names.empty() ? "" : ", ", model.name);
  return names;
}

ModelConfig bench_model(const std::string& name) {
  for (const ModelText& model : kModelTexts) {
    if (name != model.name) continue;
    ConfigReport report;
    ModelConfig config = read_model_config(parse_json(model.json, name), "", report);
    report.throw_if_errors(name);
    return config;
  }
  if (name.find_first_of("./") == std::string::npos)
    fail_input("--model ", name,
               " is not a path and not a known model; supported: ", bench_model_names());
  std::vector<std::string> notes;
  ModelConfig config = load_model_config(local_model(name), notes);
  for (const std::string& note : notes) log_info(note);
  return config;
}

Tensor Operands::take(DType dtype, const Shape& shape) {
  const int64_t bytes = checked_mul(shape.numel(), dtype_size(dtype));
  buffers_.emplace_back("bench operand", std::max<int64_t>(1, bytes),
                        ctx_ != nullptr ? ctx_->memory() : Memory::kHost);
  return buffers_.back().tensor(dtype, shape);
}

Tensor Operands::zeros(DType dtype, const Shape& shape) {
  const Tensor t = take(dtype, shape);
  if (ctx_ != nullptr)
    fill_bytes(*ctx_, t, 0);
  else
    buffers_.back().touch(1);
  return t;
}

Tensor Operands::make(DType dtype, const Shape& shape) {
  TRIREME_CHECK(ctx_ != nullptr, "random operands need a context");
  const Tensor t = take(dtype, shape);
  fill_noise(*ctx_, t, buffers_.size());
  return t;
}

Tensor Operands::copied(const ConstTensor& host) {
  TRIREME_CHECK(ctx_ != nullptr, "a copied operand needs a context");
  const Tensor t = take(host.dtype(), host.shape());
  transfer(*ctx_, t, host);
  return t;
}

Tensor Operands::ids(const Shape& shape, int64_t below) {
  return filled<int32_t>(shape, [&](int32_t* out) {
    for (int64_t i = 0; i < shape.numel(); ++i)
      out[i] = static_cast<int32_t>((i * 2654435761) % below);
  });
}

double median_seconds(Ctx& ctx, int samples, double sample_seconds,
                      const std::function<void()>& call) {
  ctx.arena.begin_planning();
  call();
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  const auto step = [&] {
    ctx.arena.begin_step(plan);
    call();
    ctx.arena.end_step();
  };
  const auto time = [&](int64_t calls) {
    if (ctx.gpu != nullptr) return device_seconds(ctx, calls, step);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) step();
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

double median(std::vector<double> values) {
  TRIREME_CHECK(!values.empty(), "nothing was measured");
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void add_kernel_choices(nlohmann::ordered_json& out, const cuda::Context& gpu) {
  out["attention"] = cuda::attention_paths(gpu);
  out["gemm_choice"] = cuda::gemm_choice(gpu);
  if (gpu.attention == nullptr) out["no_cudnn"] = gpu.no_attention;
  if (!gpu.notes.empty()) out["notes"] = gpu.notes;
}

double BenchCeiling::gflops(DType dtype) const {
  for (const DevicePeak& peak : gpu)
    if (peak.dtype == dtype) return peak.gemm_tflops * 1e3;
  return dtype == DType::kBF16 ? cpu.bfloat16_gflops : cpu.float32_gflops;
}

double BenchCeiling::reading_gbytes(double bytes) const {
  return gpu.empty() ? cpu.reading_gbytes(bytes) : gpu.front().copy_gbytes;
}

double BenchCeiling::moving_gbytes(double bytes) const {
  return gpu.empty() ? cpu.moving_gbytes(bytes) : gpu.front().copy_gbytes;
}

int prepare_bench(const BenchOptions& options) {
  const int team = options.threads > 0 ? options.threads : available_cores();
  pin_team(0, team);
  return team;
}

BenchCeiling measure_ceiling(Ctx& ctx, const BenchOptions& options) {
  BenchCeiling ceiling;
  if (ctx.gpu == nullptr) {
    ceiling.cpu = measure_peak(ctx.threads);
    return ceiling;
  }
  ceiling.cpu.threads = ctx.threads;
  for (const DType dtype : options.dtypes())
    ceiling.gpu.push_back(measure_device_peak(ctx, dtype, options.peak_side));
  return ceiling;
}

void raise_ceiling(const Ctx& ctx, BenchCeiling& ceiling, bool with_memory) {
  if (ctx.gpu == nullptr) raise_peak(ceiling.cpu, measure_peak(ctx.threads, with_memory));
}

std::string ceiling_text(const Ctx& ctx, const BenchCeiling& ceiling) {
  char text[256];
  if (ctx.gpu != nullptr) {
    std::string out = ctx.gpu->info.name + "\n";
    for (const DevicePeak& peak : ceiling.gpu) {
      std::snprintf(
          text, sizeof text,
          "measured: %s products of side %lld %.1f TFLOP/s (nominal %.0f), copy %.0f GB/s\n",
          std::string(dtype_name(peak.dtype)).c_str(), static_cast<long long>(peak.side),
          peak.gemm_tflops, peak.nominal_tflops, peak.copy_gbytes);
      out += text;
    }
    return out;
  }
  const MachinePeak& peak = ceiling.cpu;
  std::snprintf(text, sizeof text,
                "measured peak: float32 %.1f GFLOP/s, bfloat16 %.1f GFLOP/s, memory %.1f GB/s",
                peak.float32_gflops, peak.bfloat16_gflops, peak.memory_gbytes());
  return concat(cpu_model_name(), ", ", peak.threads, " threads, ", isa_name(active_isa()), ", ",
                gemm_library_version(), "\n", text, "\n");
}

}  // namespace trireme
