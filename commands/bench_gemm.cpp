// bench gemm: every matrix product of a training step of three workloads, as the layers call it.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench.h"
#include "commands/bench_support.h"
#include "engine/core/cpu.h"
#include "engine/ops/gemm.h"

namespace trireme {
namespace {

// A linear layer y (tokens, out) = x (tokens, in) w^T of a workload.
struct Layer {
  const char* workload;
  const char* name;
  int64_t tokens, out, in;
  bool head = false;  // logits: float32, rows padded to 64 elements
};

// The head works on chunks of tokens: 512 and 1024 are what 1024 and 2048 tokens are cut into.
const std::vector<Layer> kLayers = {
    {"gpt2-124m B4 T64", "qkv", 256, 2304, 768},
    {"gpt2-124m B4 T64", "proj", 256, 768, 768},
    {"gpt2-124m B4 T64", "up", 256, 3072, 768},
    {"gpt2-124m B4 T64", "down", 256, 768, 3072},
    {"gpt2-124m B4 T64", "head", 256, 50257, 768, true},
    {"gpt2-124m B4 T256", "qkv", 1024, 2304, 768},
    {"gpt2-124m B4 T256", "proj", 1024, 768, 768},
    {"gpt2-124m B4 T256", "up", 1024, 3072, 768},
    {"gpt2-124m B4 T256", "down", 1024, 768, 3072},
    {"gpt2-124m B4 T256", "head", 512, 50257, 768, true},
    {"llama-15m B8 T256", "qkv", 2048, 864, 288},
    {"llama-15m B8 T256", "proj", 2048, 288, 288},
    {"llama-15m B8 T256", "gate_up", 2048, 1536, 288},
    {"llama-15m B8 T256", "down", 2048, 288, 768},
    {"llama-15m B8 T256", "head", 1024, 32000, 288, true},
};

enum class Pass { kForward, kInput, kWeight };
constexpr const char* kPassNames[] = {"NT y = x w'", "NN dx = dy w", "TN dw = dy' x"};

struct Result {
  const Layer* layer;
  Pass pass;
  DType dtype;
  double seconds, gflops, share;  // share of the measured peak
};

// Operands of one layer, in float32 or bfloat16 with float32 logits and weight gradients.
struct LayerOperands {
  Operands memory;
  Tensor x, w, y, dy, dw;

  LayerOperands(const Layer& layer, DType dtype) {
    x = memory.make(dtype, {layer.tokens, layer.in});
    w = memory.make(dtype, {layer.out, layer.in});
    dw = memory.zeros(DType::kF32, {layer.out, layer.in});
    const Shape rows{layer.tokens, layer.head ? round_up(layer.out, 64) : layer.out};
    y = memory.zeros(layer.head ? DType::kF32 : dtype, rows).slice(1, 0, layer.out);
    dy = memory.make(dtype, rows).slice(1, 0, layer.out);
  }
};

void bench_layer(Ctx& ctx, const Layer& layer, DType dtype, const BenchOptions& options,
                 const MachinePeak& peak, std::vector<Result>& results) {
  const LayerOperands o(layer, dtype);
  const std::array<std::function<void()>, 3> calls = {
      [&] { linear_forward(ctx, o.y, o.x, o.w, {}); },
      [&] { linear_backward_input(ctx, o.x, o.dy, o.w, false); },
      [&] { linear_backward_weight(ctx, o.dw, o.dy, o.x, false); }};
  // dx last: it takes the place of x.
  for (const Pass pass : {Pass::kForward, Pass::kWeight, Pass::kInput}) {
    const double seconds =
        median_seconds(ctx, options.samples, 0.03, calls[static_cast<size_t>(pass)]);
    const double operations = 2.0 * static_cast<double>(layer.tokens * layer.out * layer.in);
    const double gflops = operations / seconds * 1e-9;
    const double top = dtype == DType::kBF16 ? peak.bfloat16_gflops : peak.float32_gflops;
    results.push_back({&layer, pass, dtype, seconds, gflops, gflops / top});
  }
}

double geometric_mean(const std::vector<Result>& results, DType dtype) {
  double sum = 0, count = 0;
  for (const Result& r : results)
    if (r.dtype == dtype) {
      sum += std::log(r.share);
      ++count;
    }
  return std::exp(sum / count);
}

void print_json(const MachinePeak& peak, const std::vector<Result>& results,
                const std::vector<DType>& dtypes) {
  nlohmann::ordered_json out;
  out["library"] = gemm_library_version();
  out["cpu"] = cpu_model_name();
  out["threads"] = peak.threads;
  out["peak_float32_gflops"] = peak.float32_gflops;
  out["peak_bfloat16_gflops"] = peak.bfloat16_gflops;
  for (const Result& r : results)
    out["products"].push_back({{"workload", r.layer->workload},
                               {"layer", r.layer->name},
                               {"product", kPassNames[static_cast<size_t>(r.pass)]},
                               {"dtype", dtype_name(r.dtype)},
                               {"tokens", r.layer->tokens},
                               {"out", r.layer->out},
                               {"in", r.layer->in},
                               {"ms", r.seconds * 1e3},
                               {"gflops", r.gflops},
                               {"share_of_peak", r.share}});
  for (const DType d : dtypes)
    out["geometric_mean_share"][std::string(dtype_name(d))] = geometric_mean(results, d);
  std::printf("%s\n", out.dump(2).c_str());
}

void print_row(const Result& r) {
  std::printf("%-18s %-8s %-14s %-9s %6lld %6lld %6lld %10.3f %9.1f %6.1f\n", r.layer->workload,
              r.layer->name, kPassNames[static_cast<size_t>(r.pass)],
              std::string(dtype_name(r.dtype)).c_str(), static_cast<long long>(r.layer->tokens),
              static_cast<long long>(r.layer->out), static_cast<long long>(r.layer->in),
              r.seconds * 1e3, r.gflops, 100 * r.share);
}

void run(const BenchOptions& options) {
  const MachinePeak peak = prepare_bench(options.threads);
  if (!options.json) {
    std::printf("%s\n", peak_line(peak).c_str());
    std::printf("%-18s %-8s %-14s %-9s %6s %6s %6s %10s %9s %6s\n", "workload", "layer", "product",
                "dtype", "tokens", "out", "in", "ms", "GFLOP/s", "% peak");
  }
  Ctx ctx(peak.threads, "bench");
  std::vector<Result> results;
  const std::vector<DType> dtypes = options.dtypes();
  for (const DType dtype : dtypes)
    for (const Layer& layer : kLayers) {
      const size_t before = results.size();
      bench_layer(ctx, layer, dtype, options, peak, results);
      if (options.json) continue;
      for (size_t i = before; i < results.size(); ++i) print_row(results[i]);
      std::fflush(stdout);
    }
  if (options.json) return print_json(peak, results, dtypes);
  std::printf("\n");
  for (const DType dtype : dtypes)
    std::printf("geometric mean, %s: %.1f %% of peak\n", std::string(dtype_name(dtype)).c_str(),
                100 * geometric_mean(results, dtype));
}

}  // namespace

CLI::App* add_bench_gemm(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "gemm", "Time every matrix product of a training step against this machine's measured peak");
  auto options = std::make_shared<BenchOptions>();
  add_bench_options(*app, *options);
  app->callback([options] { run(*options); });
  return app;
}

}  // namespace trireme
