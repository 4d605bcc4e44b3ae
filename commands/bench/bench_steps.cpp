// Benchmark of a server's engine steps (`bench steps`): host time outside the model, and the cost
// of deterministic mode and of other KV cache types.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/rank_options.h"
#include "parallel/parameter_store.h"
#include "serving/distributed/plan_codec.h"
#include "serving/engine/engine.h"
#include "serving/engine/model_executor.h"
#include "transformer/pass/kv_groups.h"

namespace trireme {
namespace {

constexpr int64_t kBenchBlockTokens = 16;

struct BenchStepsOptions : BenchOptions {
  std::string model = "quickstart";
  int64_t prompt = 64, tokens = 32, sequences = 8;
  std::optional<KvType> kv_type;
  int64_t host_sequences = 256, host_prompt = 512, host_length = 131072;
};

double milliseconds(std::chrono::steady_clock::time_point since) {
  const auto passed = std::chrono::steady_clock::now() - since;
  return std::chrono::duration<double, std::milli>(passed).count();
}

SequenceRequest request_of(int64_t prompt, int64_t tokens) {
  SequenceRequest request;
  request.max_tokens = tokens;
  request.prompt.assign(static_cast<size_t>(prompt), 1);
  auto params = std::make_shared<SamplingParams>();
  params->sampling.temperature = 0;
  request.sampling_params = std::move(params);
  return request;
}

// Executor without model, sampling and masks. It encodes the scheduler output as for other ranks.
class HostOnly final : public StepExecutor {
 public:
  explicit HostOnly(const StepLimits& limits)
      : ctx_(1, "bench host"), builder_(limits, {}), batch_(ctx_, limits) {}
  StepOutput execute(const SchedulerOutput& plan) override {
    builder_.take(plan);
    builder_.write(ctx_, batch_, plan, 0, plan.sequences.size(), 0, rows_);
    bytes_ = encode_plan(plan);
    StepOutput outcome;
    outcome.number = plan.number;
    outcome.sampled.assign(rows_.size(), OutputToken{.id = 1});
    return outcome;
  }

 private:
  Ctx ctx_;
  BatchBuilder builder_;
  StepBatch batch_;
  std::vector<LogitRow> rows_;
  std::vector<std::byte> bytes_;
};

struct HostTimes {
  int64_t kv_groups = 1;  // of layers in the KV cache, each with its own block table
  double median_us = 0, p99_us = 0;
};

// Times of steps in which every sequence decodes.
HostTimes measure_host(const BenchStepsOptions& o) {
  const int64_t step_tokens = std::max<int64_t>(2048, 4 * o.host_sequences);
  // The first sequence runs until the last prompt is computed, and for some further steps.
  const int64_t length = o.host_prompt + 2 * o.host_prompt * o.host_sequences / step_tokens + 300;
  const int64_t max_length = std::max(o.host_length, length);
  const std::vector<int64_t> windows = kv_windows(bench_model(o.model), max_length);
  const StepLimits limits{.tokens = step_tokens,
                          .sequences = o.host_sequences,
                          .length = max_length,
                          .blocks = std::ssize(windows) *
                                    std::max(o.host_sequences * ceil_div(length, kBenchBlockTokens),
                                             ceil_div(max_length, kBenchBlockTokens)),
                          .block_tokens = kBenchBlockTokens,
                          .windows = windows};
  std::vector<double> times;
  Engine engine(std::make_unique<HostOnly>(limits),
                {.max_sequences = limits.sequences,
                 .max_step_tokens = limits.tokens,
                 .max_model_len = limits.length,
                 .windows = windows,
                 .prefix_caching = false},
                limits.blocks, kBenchBlockTokens, [&](const StepReport& r) {
                  if (r.tokens == o.host_sequences && r.sequences == r.tokens)
                    times.push_back(1e6 * (r.plan_seconds + r.execute_seconds + r.report_seconds));
                });
  std::vector<std::promise<void>> ended(static_cast<size_t>(o.host_sequences));
  // Adds all sequences before the first step, even on a busy machine.
  engine.between_steps([&] {
    for (std::promise<void>& end : ended)
      engine.add(request_of(o.host_prompt, length - o.host_prompt), [&end](SequenceEvent&& event) {
        if (event.finish) end.set_value();
      });
  });
  for (std::promise<void>& end : ended) end.get_future().wait();
  engine.stop();
  TRIREME_CHECK(!times.empty(), "no step had ", o.host_sequences, " sequences");
  std::ranges::sort(times);
  return {std::ssize(windows), times[times.size() / 2], times[times.size() * 99 / 100]};
}

// Modes in which the same steps are timed, in turn.
constexpr const char* kModes[] = {"", "deterministic", "kv_cache"};
struct ModeTimes {
  int modes = 2;
  double prompt_ms[3] = {}, token_ms[3] = {};
};

ModeTimes measure_modes(const BenchStepsOptions& o, DType dtype, int threads) {
  const ModelConfig config = bench_model(o.model);
  const int64_t block = kv_block_tokens(config);
  const StepLimits limits{.tokens = o.prompt * o.sequences,
                          .sequences = o.sequences,
                          .length = o.prompt + o.tokens,
                          .blocks = o.sequences * ceil_div(o.prompt + o.tokens, block),
                          .block_tokens = block};
  Model model(config, dtype);
  ParameterStore store(model.parameters(), dtype);
  Ctx plain(threads, "bench"), exact(threads, "bench deterministic"), kept(threads, "bench cache");
  store.allocate(plain, false);
  store.initialize(plain, 1);
  model.reserve_positions(plain, limits.length);
  StepLimits deterministic = limits, other = limits;
  deterministic.deterministic = true;
  other.kv_type = o.kv_type;
  ModelExecutor executors[] = {{model, store, plain, nullptr, {.limits = limits}},
                               {model, store, exact, nullptr, {.limits = deterministic}},
                               {model, store, kept, nullptr, {.limits = other}}};
  ModeTimes times{.modes = o.kv_type.has_value() ? 3 : 2};
  std::vector<double> prompt[3], token[3];
  // The first round warms up caches and plans.
  for (int round = 0; round < 1 + o.samples; ++round) {
    KvBlockPool pool(limits.blocks, block, 0);
    Scheduler scheduler({.max_sequences = limits.sequences,
                         .max_step_tokens = limits.tokens,
                         .max_model_len = limits.length,
                         .prefix_caching = false},
                        pool);
    for (int64_t n = 0; n < o.sequences; ++n)
      scheduler.add(std::make_shared<Sequence>(request_of(o.prompt, o.tokens)));
    for (bool first = true; !scheduler.idle(); first = false) {
      const SchedulerOutput plan = scheduler.next();
      StepOutput outcome;
      for (int mode = 0; mode < times.modes; ++mode) {
        const auto begin = std::chrono::steady_clock::now();
        outcome = executors[mode].execute(plan);
        if (round > 0) (first ? prompt : token)[mode].push_back(milliseconds(begin));
      }
      scheduler.done(plan, std::move(outcome));
    }
  }
  for (int mode = 0; mode < times.modes; ++mode) {
    times.prompt_ms[mode] = median(prompt[mode]);
    times.token_ms[mode] = median(token[mode]);
  }
  return times;
}

void print(const BenchStepsOptions& o, DType dtype, const ModeTimes& t) {
  const std::string type(dtype_name(dtype));
  if (o.json) {
    nlohmann::ordered_json out = {
        {"model", o.model}, {"dtype", type}, {"sequences", o.sequences}, {"prompt", o.prompt}};
    if (o.kv_type) out["kv_cache_dtype"] = text(*o.kv_type);
    for (int mode = 0; mode < t.modes; ++mode) {
      const std::string suffix = mode == 0 ? "" : concat("_", kModes[mode]);
      out["prompt_ms" + suffix] = t.prompt_ms[mode];
      out["token_ms" + suffix] = t.token_ms[mode];
    }
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  const auto line = [&](const char* what, const double(&ms)[3]) {
    std::printf("  %-28s %10.3f ms, deterministic %10.3f ms (%.2f times as long)\n", what, ms[0],
                ms[1], ms[1] / ms[0]);
    if (o.kv_type)
      std::printf("  %-28s   KV cache in %10s %10.3f ms (%.2f times as long)\n", "",
                  text(*o.kv_type).c_str(), ms[2], ms[2] / ms[0]);
  };
  std::printf("%s, %s, %lld sequences\n", o.model.c_str(), type.c_str(),
              static_cast<long long>(o.sequences));
  line(concat("prompts of ", o.prompt, " tokens").c_str(), t.prompt_ms);
  line("one token per sequence", t.token_ms);
}

void run_bench_steps(const BenchStepsOptions& o) {
  const int threads = prepare_bench(o);
  const HostTimes host = measure_host(o);
  if (o.json)
    std::printf("%s\n", nlohmann::ordered_json({{"host_sequences", o.host_sequences},
                                                {"max_model_len", o.host_length},
                                                {"kv_groups", host.kv_groups},
                                                {"host_us", host.median_us},
                                                {"host_p99_us", host.p99_us}})
                            .dump()
                            .c_str());
  else
    std::printf(
        "host work, %lld sequences of at most %lld tokens, %lld KV cache %s: %.0f us per step, "
        "P99 %.0f us (without model, sampling and masks)\n",
        static_cast<long long>(o.host_sequences), static_cast<long long>(o.host_length),
        static_cast<long long>(host.kv_groups), host.kv_groups == 1 ? "group" : "groups",
        host.median_us, host.p99_us);
  for (const DType dtype : o.dtypes()) print(o, dtype, measure_modes(o, dtype, threads));
}

}  // namespace

CLI::App* add_bench_steps(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "steps",
      "Time a server's engine steps on the CPU: host work, deterministic mode, KV cache types");
  auto options = std::make_shared<BenchStepsOptions>();
  add_bench_options(*app, *options);
  const auto number = [&](const char* name, int64_t& value, int64_t most, const char* help) {
    app->add_option(name, value, help)->check(CLI::Range(int64_t{1}, most))->capture_default_str();
  };
  app->add_option("--model", options->model,
                  "Model: " + bench_model_names() +
                      ", a model directory or .gguf, a Hub name, or the path of a config.json")
      ->capture_default_str();
  number("--prompt", options->prompt, 1 << 20, "Tokens of each prompt");
  number("--tokens", options->tokens, 1 << 20, "Tokens to generate per sequence");
  number("--sequences", options->sequences, 1 << 12, "Concurrent sequences");
  number("--host-sequences", options->host_sequences, 1 << 12,
         "Concurrent sequences when host work is timed");
  number("--host-length", options->host_length, 1 << 20,
         "Maximum tokens per sequence when host work is timed");
  add_kv_cache_option(*app, options->kv_type);
  app->callback([options] { run_bench_steps(*options); });
  return app;
}

}  // namespace trireme
