// Benchmark of decoding one sequence (`bench decode`): time per token, compared with the time of
// reading the weights and the cached keys and values once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/rank_options.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "parallel/parameter_store.h"
#include "serving/engine/generate.h"
#include "serving/model/kv_cache_type.h"

namespace trireme {
namespace {

struct BenchDecodeOptions : BenchOptions {
  std::string model = "gpt2-124m";
  int64_t prompt = 128;
  int64_t tokens = 64;
  std::optional<BlockFormat> quantization;
  std::optional<KvType> kv_type;
};

struct BenchDecodeResult {
  int64_t parameters = 0, read_bytes = 0;  // of a token in the middle of the timed ones
  double prompt_ms = 0, median_ms = 0, mean_ms = 0, floor_ms = 0;
  int64_t launches = 0;  // per token
};

// Bytes that one token reads: all weights (one row of an untied input table), and keys and values
// of `positions`.
int64_t bytes_of_token(const ModelConfig& m, const ParameterStore& store, const KvType& kept,
                       int64_t positions) {
  const int64_t cached =
      2 * m.num_layers * m.num_kv_heads * row_bytes(kept, m.head_dim) * positions;
  int64_t unread = 0;
  if (!m.tie_word_embeddings) unread += m.vocab_size * m.hidden_size;
  if (m.learned_positions) unread += m.max_positions * m.hidden_size;
  return store.value_bytes() + cached - unread * dtype_size(store.dtype());
}

BenchDecodeResult measure(Ctx& ctx, const BenchDecodeOptions& options, DType dtype) {
  const ModelConfig config = bench_model(options.model);
  if (options.prompt + options.tokens > longest_sequence(config))
    fail_input("--prompt ", options.prompt, " + --tokens ", options.tokens,
               " is above the model's ", longest_sequence(config), " positions");
  const KvType kept = options.kv_type.value_or(KvType{dtype});
  check_kv_type(kept, dtype, ctx.gpu != nullptr);
  Model model(config, dtype);
  ParameterStore store(model.parameters(), dtype, {}, {.blocks = options.quantization});
  store.allocate(ctx, false);
  store.initialize(ctx, 1);
  model.reserve_positions(ctx, options.prompt + options.tokens);
  std::vector<int32_t> prompt(static_cast<size_t>(options.prompt));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(philox_word({1, stream_id("bench prompt")}, i) %
                                     static_cast<uint64_t>(config.vocab_size));
  GenerateOptions generation;
  generation.sampling.temperature = 0;
  generation.max_new_tokens = options.tokens;
  generation.kv_type = kept;
  BenchDecodeResult result;
  result.parameters = store.parameter_count();
  // The first pass warms up caches and plans; the second is reported. The time of a token ends when
  // the host has it.
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<double> seconds;
    const int64_t launched = ctx.gpu != nullptr ? ctx.gpu->launches : 0;
    auto last = std::chrono::steady_clock::now();
    generate(model, store, ctx, prompt, generation, [&](int32_t) {
      const auto now = std::chrono::steady_clock::now();
      seconds.push_back(std::chrono::duration<double>(now - last).count());
      last = now;
      return true;
    });
    if (ctx.gpu != nullptr) result.launches = (ctx.gpu->launches - launched) / std::ssize(seconds);
    result.prompt_ms = seconds.front() * 1e3;
    result.mean_ms = std::accumulate(seconds.begin() + 1, seconds.end(), 0.0) * 1e3 /
                     static_cast<double>(seconds.size() - 1);
    std::sort(seconds.begin() + 1, seconds.end());
    result.median_ms = seconds[(seconds.size() + 1) / 2] * 1e3;
  }
  result.read_bytes = bytes_of_token(config, store, kept, options.prompt + options.tokens / 2);
  return result;
}

void print(const BenchDecodeOptions& options, const Ctx& ctx, DType dtype, double gbytes,
           const BenchDecodeResult& r) {
  const std::string type(dtype_name(dtype)), kept = text(options.kv_type.value_or(KvType{dtype}));
  if (!options.json) {
    std::printf(
        "%s, %s, weights %s, cache %s, prompt of %lld tokens: prompt %.2f ms, token %.3f ms, %.1f "
        "tokens/s\n"
        "            floor %.3f ms per token, to read %.2f GB at %.0f GB/s: %.1f %% of that rate\n",
        options.model.c_str(), type.c_str(), quantization_name(options.quantization, dtype).c_str(),
        kept.c_str(), static_cast<long long>(options.prompt), r.prompt_ms, r.median_ms,
        1e3 / r.median_ms, r.floor_ms, static_cast<double>(r.read_bytes) * 1e-9, gbytes,
        100 * r.floor_ms / r.median_ms);
    return;
  }
  nlohmann::ordered_json out = {{"model", options.model},
                                {"parameters", r.parameters},
                                {"dtype", type},
                                {"weights", quantization_name(options.quantization, dtype)},
                                {"kv_cache", kept},
                                {"batch", 1},
                                {"prompt", options.prompt},
                                {"tokens", options.tokens},
                                {"prompt_ms", r.prompt_ms},
                                {"token_ms", r.median_ms},
                                {"tokens_per_second", 1e3 / r.median_ms},
                                {"mean_token_ms", r.mean_ms},
                                {"read_bytes", r.read_bytes},
                                {"ceiling_gbytes", gbytes},
                                {"floor_ms", r.floor_ms},
                                {"share_of_floor", r.floor_ms / r.median_ms}};
  if (ctx.gpu != nullptr) {
    out["device"] = ctx.gpu->info.name;
    out["launches_per_token"] = r.launches;
    add_kernel_choices(out, *ctx.gpu);
  }
  std::printf("%s\n", out.dump().c_str());
}

void run_bench_decode(const BenchDecodeOptions& options) {
  const int threads = prepare_bench(options);
  const std::unique_ptr<cuda::Context> gpu = open_bench_device(options.device);
  Ctx ctx(threads, "bench", gpu.get());
  BenchCeiling ceiling = measure_ceiling(ctx, options);
  for (const DType dtype : options.dtypes()) {
    BenchDecodeResult result = measure(ctx, options, dtype);
    raise_ceiling(ctx, ceiling);
    const auto bytes = static_cast<double>(result.read_bytes);
    result.floor_ms = bytes / (ceiling.reading_gbytes(bytes) * 1e9) * 1e3;
    print(options, ctx, dtype, ceiling.reading_gbytes(bytes), result);
  }
}

}  // namespace

CLI::App* add_bench_decode(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "decode", "Time decoding of one sequence, per token, against reading the weights once");
  auto options = std::make_shared<BenchDecodeOptions>();
  add_bench_options(*app, *options);
  app->add_option("--model", options->model,
                  "Model: " + bench_model_names() +
                      ", a model directory or .gguf, a Hub name, or the path of a config.json")
      ->capture_default_str();
  app->add_option("--prompt", options->prompt, "Tokens of the prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--tokens", options->tokens, "Tokens to generate")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  add_quantization_option(*app, options->quantization);
  add_kv_cache_option(*app, options->kv_type);
  app->callback([options] { run_bench_decode(*options); });
  return app;
}

}  // namespace trireme
