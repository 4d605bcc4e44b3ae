// Benchmark of matrix products (`bench gemm`): those of a training step, as the layers call them,
// for three workloads or for a model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "engine/ops/gemm/gemm.h"
#include "transformer/layers/lm_head.h"

namespace trireme {
namespace {

// Linear layer y (tokens, out) = x (tokens, in) w^T of a workload.
struct Layer {
  std::string workload;
  const char* name;
  int64_t tokens, out, in;
  bool head = false;  // logits: float32, rows padded to 64 elements
};

// The head processes chunks of tokens: 512 of 1024 tokens, 1024 of 2048.
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

struct BenchGemmOptions : BenchOptions {
  std::string model;  // empty: kLayers
  int64_t tokens = 16384;
};

// Products of a dense model's layer, and of its head on one chunk of tokens of the loss.
std::vector<Layer> layers_of(const BenchGemmOptions& options, bool on_gpu) {
  if (options.model.empty()) return kLayers;
  const ModelConfig m = bench_model(options.model);
  if (m.moe.experts > 0) fail_input("--model ", options.model, " has experts: give a dense model");
  const int64_t t = options.tokens, c = m.hidden_size, heads = m.num_heads * m.head_dim;
  const bool gated = m.gated_mlp;
  const std::string name = concat(options.model, " T", t);
  return {{name, "qkv", t, heads + 2 * m.num_kv_heads * m.head_dim, c},
          {name, "proj", t, c, heads},
          {name, gated ? "gate_up" : "up", t, (gated ? 2 : 1) * m.intermediate_size, c},
          {name, "down", t, c, m.intermediate_size},
          {name, "head", loss_chunk_rows(t, m.vocab_size, on_gpu), m.vocab_size, c, true}};
}

enum class GemmPass { kForward, kInput, kWeight };
constexpr const char* kPassNames[] = {"NT y = x w'", "NN dx = dy w", "TN dw = dy' x"};

struct BenchGemmResult {
  Layer layer;
  GemmPass pass;
  DType dtype;
  double seconds, gflops;
};

// Operands of one layer, in float32 or bfloat16 with float32 logits and weight gradients.
struct LayerOperands {
  Operands memory;
  Tensor x, w, y, dy, dw;

  LayerOperands(Ctx& ctx, const Layer& layer, DType dtype) : memory(ctx) {
    x = memory.make(dtype, {layer.tokens, layer.in});
    w = memory.make(dtype, {layer.out, layer.in});
    dw = memory.zeros(DType::kF32, {layer.out, layer.in});
    const Shape rows{layer.tokens, layer.head ? round_up(layer.out, 64) : layer.out};
    y = memory.zeros(layer.head ? DType::kF32 : dtype, rows).slice(1, 0, layer.out);
    dy = memory.make(dtype, rows).slice(1, 0, layer.out);
  }
};

void bench_layer(Ctx& ctx, const Layer& layer, DType dtype, const BenchOptions& options,
                 std::vector<BenchGemmResult>& results) {
  const LayerOperands o(ctx, layer, dtype);
  const std::array<std::function<void()>, 3> calls = {
      [&] { linear_forward(ctx, o.y, o.x, o.w, {}); },
      [&] { linear_backward_input(ctx, o.x, o.dy, o.w, false); },
      [&] { linear_backward_weight(ctx, o.dw, o.dy, o.x, false); }};
  // dx last: it overwrites x.
  for (const GemmPass pass : {GemmPass::kForward, GemmPass::kWeight, GemmPass::kInput}) {
    const double seconds =
        median_seconds(ctx, options.samples, 0.03, calls[static_cast<size_t>(pass)]);
    const double operations = 2.0 * static_cast<double>(layer.tokens * layer.out * layer.in);
    const double gflops = operations / seconds * 1e-9;
    results.push_back({layer, pass, dtype, seconds, gflops});
  }
}

double share(const BenchGemmResult& r, const BenchCeiling& ceiling) {
  return r.gflops / ceiling.gflops(r.dtype);
}

double geometric_mean(const std::vector<BenchGemmResult>& results, const BenchCeiling& ceiling,
                      DType dtype) {
  double sum = 0, count = 0;
  for (const BenchGemmResult& r : results)
    if (r.dtype == dtype) {
      sum += std::log(share(r, ceiling));
      ++count;
    }
  return std::exp(sum / count);
}

nlohmann::ordered_json place_json(const Ctx& ctx, const BenchCeiling& ceiling) {
  nlohmann::ordered_json out;
  if (ctx.gpu == nullptr) {
    out["library"] = gemm_library_version();
    out["cpu"] = cpu_model_name();
    out["threads"] = ceiling.cpu.threads;
    out["peak_float32_gflops"] = ceiling.cpu.float32_gflops;
    out["peak_bfloat16_gflops"] = ceiling.cpu.bfloat16_gflops;
    return out;
  }
  out["device"] = ctx.gpu->info.name;
  add_kernel_choices(out, *ctx.gpu);
  out["copy_gbytes"] = ceiling.gpu.front().copy_gbytes;
  for (const DevicePeak& peak : ceiling.gpu)
    out["square"].push_back({{"dtype", dtype_name(peak.dtype)},
                             {"side", peak.side},
                             {"tflops", peak.gemm_tflops},
                             {"nominal_tflops", peak.nominal_tflops}});
  return out;
}

void print_json(const Ctx& ctx, const BenchCeiling& ceiling,
                const std::vector<BenchGemmResult>& results, const std::vector<DType>& dtypes) {
  nlohmann::ordered_json out = place_json(ctx, ceiling);
  for (const BenchGemmResult& r : results)
    out["products"].push_back({{"workload", r.layer.workload},
                               {"layer", r.layer.name},
                               {"product", kPassNames[static_cast<size_t>(r.pass)]},
                               {"dtype", dtype_name(r.dtype)},
                               {"tokens", r.layer.tokens},
                               {"out", r.layer.out},
                               {"in", r.layer.in},
                               {"ms", r.seconds * 1e3},
                               {"gflops", r.gflops},
                               {"share_of_peak", share(r, ceiling)}});
  for (const DType d : dtypes)
    out["geometric_mean_share"][std::string(dtype_name(d))] = geometric_mean(results, ceiling, d);
  std::printf("%s\n", out.dump(2).c_str());
}

void print_row(const BenchGemmResult& r, const BenchCeiling& ceiling) {
  std::printf("%-18s %-8s %-14s %-9s %6lld %6lld %6lld %10.3f %9.1f %6.1f\n",
              r.layer.workload.c_str(), r.layer.name, kPassNames[static_cast<size_t>(r.pass)],
              std::string(dtype_name(r.dtype)).c_str(), static_cast<long long>(r.layer.tokens),
              static_cast<long long>(r.layer.out), static_cast<long long>(r.layer.in),
              r.seconds * 1e3, r.gflops, 100 * share(r, ceiling));
}

void run_bench_gemm(const BenchGemmOptions& options) {
  const int threads = prepare_bench(options);
  const std::unique_ptr<cuda::Context> gpu = open_bench_device(options.device);
  const std::vector<Layer> layers = layers_of(options, gpu != nullptr);
  Ctx ctx(threads, "bench", gpu.get());
  BenchCeiling ceiling = measure_ceiling(ctx, options);
  const std::vector<DType> dtypes = options.dtypes();
  std::vector<BenchGemmResult> results;
  for (const DType dtype : dtypes)
    for (const Layer& layer : layers) {
      bench_layer(ctx, layer, dtype, options, results);
      raise_ceiling(ctx, ceiling, false);
      log_info(layer.workload, " ", layer.name, " in ", dtype_name(dtype), ": ", results.size(),
               " of ", dtypes.size() * layers.size() * 3, " products timed");
    }
  if (options.json) return print_json(ctx, ceiling, results, dtypes);
  std::printf("%s\n", ceiling_text(ctx, ceiling).c_str());
  std::printf("%-18s %-8s %-14s %-9s %6s %6s %6s %10s %9s %6s\n", "workload", "layer", "product",
              "dtype", "tokens", "out", "in", "ms", "GFLOP/s", "% peak");
  for (const BenchGemmResult& r : results) print_row(r, ceiling);
  std::printf("\n");
  for (const DType dtype : dtypes)
    std::printf("geometric mean, %s: %.1f %% of peak\n", std::string(dtype_name(dtype)).c_str(),
                100 * geometric_mean(results, ceiling, dtype));
}

}  // namespace

CLI::App* add_bench_gemm(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "gemm", "Time every matrix product of a training step against this machine's measured peak");
  auto options = std::make_shared<BenchGemmOptions>();
  add_bench_options(*app, *options);
  app->add_option("--model", options->model,
                  "Model whose products are timed (" + bench_model_names() + ", or a config.json)");
  app->add_option("--tokens", options->tokens, "With --model: tokens of a micro-batch")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->callback([options] { run_bench_gemm(*options); });
  return app;
}

}  // namespace trireme
