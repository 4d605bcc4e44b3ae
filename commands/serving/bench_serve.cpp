// Benchmark of a server under load (`bench serve`): any server of OpenAI's API.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench/bench.h"
#include "commands/table.h"
#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"
#include "engine/observe/log.h"
#include "serving/bench/load_run.h"

namespace trireme {
namespace {

struct BenchServeOptions {
  LoadOptions load;
  WorkloadOptions workload;
  ServiceLevel level;
  std::string base_url = "http://127.0.0.1:8000", backend = "openai", endpoint, output;
  int64_t prompts = 1000, warmups = -1;
  double rate = 0, burstiness = 1;
  int timeout_seconds = 300;
  std::vector<std::string> goodput;
  bool detailed = false;
};

// Completes and checks the options before any request is sent.
void complete(BenchServeOptions& options) {
  options.load.server = parse_server_address(options.base_url, "--base-url");
  options.load.chat = options.workload.chat = options.backend == "openai-chat";
  options.load.timeout = std::chrono::seconds(options.timeout_seconds);
  options.load.path = options.endpoint;
  if (options.endpoint.empty())
    options.load.path = options.load.chat ? "/v1/chat/completions" : "/v1/completions";
  if (options.load.path.find_first_of(" \t\r\n") != std::string::npos ||
      !options.load.path.starts_with('/'))
    fail_input("--endpoint ", options.endpoint,
               " is not a path: expected one that begins with / and has no spaces");
  for (const char c : options.load.api_key)
    if (c <= ' ' || c > '~')
      fail_input("--api-key has a character that is not allowed in a header");
  const bool random = options.workload.dataset == "random";
  if (random != options.workload.path.empty())
    fail_input("--dataset-name ", options.workload.dataset,
               random ? " takes no --dataset-path" : " needs --dataset-path");
  if (options.workload.prefix_tokens > options.workload.input_tokens)
    fail_input("--random-prefix-len ", options.workload.prefix_tokens, " is above --input-len ",
               options.workload.input_tokens);
  options.level = parse_service_level(options.goodput);
  if (options.warmups < 0) options.warmups = std::max<int64_t>(1, options.load.max_concurrency);
}

// Sends as many requests as the run will have in flight, so that connections, caches and graphs
// exist before it.
void warm_up(const BenchServeOptions& options) {
  if (options.warmups == 0) return;
  const auto requests = make_requests(options.workload, options.warmups, "warm-up");
  const LoadResult result =
      run_load(options.load, requests, std::vector<double>(requests.size(), 0.0));
  for (const RequestOutcome& outcome : result.outcomes)
    if (outcome.error.empty()) return;
  throw Error(concat("no request of the warm-up succeeded: ", result.outcomes.front().error));
}

nlohmann::ordered_json json_of(const BenchServeOptions& options, const LoadResult& result,
                               const LoadReport& report) {
  nlohmann::ordered_json out = {
      {"backend", options.backend},
      {"base_url", options.load.server.url()},
      {"endpoint", options.load.path},
      {"model_id", options.workload.model},
      {"dataset_name", options.workload.dataset},
      {"num_prompts", options.prompts},
      {"num_warmups", options.warmups},
      {"request_rate", options.rate > 0 ? nlohmann::ordered_json(options.rate) : "inf"},
      {"burstiness", options.burstiness},
      {"seed", options.workload.seed},
      {"duration", report.duration},
      {"completed", report.completed},
      {"failed", report.failed},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"tokens_counted_by_server", result.has_usage},
      {"request_throughput", report.request_rate()},
      {"output_throughput", report.output_rate()},
      {"total_token_throughput", report.token_rate()},
      {"max_concurrent_requests", report.max_concurrent}};
  out["max_concurrency"] = nullptr;
  if (options.load.max_concurrency > 0) out["max_concurrency"] = options.load.max_concurrency;
  out["request_goodput"] = nullptr;
  if (options.level.any()) out["request_goodput"] = report.good_rate();
  const auto add = [&](const std::string& name, const Distribution& values) {
    out["mean_" + name] = values.mean * 1e3;
    out["median_" + name] = values.p50 * 1e3;
    out["std_" + name] = values.deviation * 1e3;
    out["p50_" + name] = values.p50 * 1e3;
    out["p90_" + name] = values.p90 * 1e3;
    out["p99_" + name] = values.p99 * 1e3;
  };
  add("ttft_ms", report.ttft);
  add("tpot_ms", report.tpot);
  add("itl_ms", report.itl);
  add("e2el_ms", report.e2el);
  if (!options.detailed) return out;
  for (const char* name : {"sent", "ttfts", "itls", "e2els", "input_lens", "output_lens", "errors"})
    out[name] = nlohmann::ordered_json::array();
  for (const RequestOutcome& outcome : result.outcomes) {
    out["sent"].push_back(outcome.sent);
    out["ttfts"].push_back(outcome.ttft);
    out["itls"].push_back(outcome.itl);
    out["e2els"].push_back(outcome.e2el);
    out["input_lens"].push_back(outcome.input_tokens);
    out["output_lens"].push_back(outcome.output_tokens);
    out["errors"].push_back(outcome.error);
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void print(const BenchServeOptions& options, const LoadReport& report) {
  const auto count = [](int64_t value) { return std::to_string(value); };
  std::vector<std::vector<std::string>> totals = {
      {"completed", count(report.completed)},
      {"failed", count(report.failed)},
      {"duration", fixed(report.duration, 2), "s"},
      {"max concurrent", count(report.max_concurrent)},
      {"input tokens", count(report.input_tokens)},
      {"output tokens", count(report.output_tokens)},
      {"requests", fixed(report.request_rate(), 2), "requests/s"},
      {"output", fixed(report.output_rate(), 1), "tokens/s"},
      {"input and output", fixed(report.token_rate(), 1), "tokens/s"}};
  if (options.level.any())
    totals.push_back({"goodput", fixed(report.good_rate(), 2), "requests/s"});
  std::printf("%s, %s%s\n", options.workload.model.c_str(), options.load.server.url().c_str(),
              options.load.path.c_str());
  print_table(totals);
  std::vector<std::vector<std::string>> times = {{"ms", "mean", "P50", "P90", "P99", "values"}};
  const auto add = [&](const char* name, const Distribution& values) {
    times.push_back({name, fixed(values.mean * 1e3, 2), fixed(values.p50 * 1e3, 2),
                     fixed(values.p90 * 1e3, 2), fixed(values.p99 * 1e3, 2),
                     std::to_string(values.count)});
  };
  add("TTFT", report.ttft);
  add("TPOT", report.tpot);
  add("ITL", report.itl);
  add("E2E", report.e2el);
  std::printf("\n");
  print_table(times);
}

// Logs each kind of failure once.
void mention_failures(const LoadResult& result) {
  std::map<std::string, int64_t> errors;
  for (const RequestOutcome& outcome : result.outcomes)
    if (!outcome.error.empty()) ++errors[outcome.error];
  int shown = 0;
  for (const auto& [error, count] : errors) {
    if (++shown > 10) break;
    log_warning(count, " of ", result.outcomes.size(), " requests failed: ", error);
  }
  if (shown > 10) log_warning("... and ", errors.size() - 10, " other errors");
  if (!result.has_usage)
    log_warning("the server reports no token usage: counted the events of its streams instead");
}

void run(BenchServeOptions options) {
  complete(options);
  require_file_or_pipe(options.load.ca_file);
  if (options.workload.model.empty()) options.workload.model = first_served_model(options.load);
  const auto requests = make_requests(options.workload, options.prompts, "run");
  const auto arrivals =
      arrival_times(options.prompts, options.rate, options.burstiness, options.workload.seed);
  warm_up(options);
  const LoadResult result = run_load(options.load, requests, arrivals);
  const LoadReport report = report_of(result.outcomes, result.duration, options.level);
  mention_failures(result);
  print(options, report);
  if (!options.output.empty())
    write_file_atomically(options.output, json_of(options, result, report).dump(2) + "\n");
  if (report.completed == 0) throw Error("no request succeeded");
}

void add_workload_options(CLI::App& app, BenchServeOptions& options) {
  WorkloadOptions& w = options.workload;
  app.add_option("--num-prompts", options.prompts, "Number of timed requests")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--dataset-name", w.dataset,
                 "Source of prompts: random: --input-len random tokens; sharegpt: first turns; "
                 "custom: JSON lines with \"prompt\" or \"messages\"")
      ->check(CLI::IsMember({"random", "sharegpt", "custom"}))
      ->capture_default_str();
  app.add_option("--dataset-path", w.path, "File of the sharegpt or custom data set")
      ->type_name("FILE");
  app.add_option("--input-len", w.input_tokens, "Tokens per random prompt; words with openai-chat")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--output-len", w.output_tokens,
                 "Maximum tokens per completion; exact with random prompts (ignore_eos); "
                 "\"output_tokens\" of a custom prompt takes precedence")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--random-prefix-len", w.prefix_tokens,
                 "Shared prefix of all random prompts, in tokens; words with openai-chat")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  app.add_option("--random-vocab-size", w.vocab_size,
                 "Vocabulary size of random prompts: their token ids are below this number")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--seed", w.seed, "Seed of prompts and arrival times")->capture_default_str();
  app.add_option("--extra-body", w.extra_body,
                 "JSON object merged into every request's body; null removes a member")
      ->type_name("JSON");
}

void add_load_options(CLI::App& app, BenchServeOptions& options) {
  app.add_option(
         "--max-concurrency", options.load.max_concurrency,
         "Maximum concurrent requests; closed loop if --request-rate is absent (default: no limit)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--request-rate", options.rate,
                 "Requests per second, arriving as a Poisson process (default: all at once)")
      ->check(CLI::Range(1e-6, 1e9));
  app.add_option("--burstiness", options.burstiness,
                 "Shape of the gaps between arrivals: below 1 bursty, above 1 more even")
      ->check(CLI::Range(1e-3, 1e6))
      ->capture_default_str();
  app.add_option("--num-warmups", options.warmups,
                 "Untimed requests before the run (default: --max-concurrency, or 1)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--goodput", options.goodput,
                 "Service-level objectives in ms for goodput: ttft:MS tpot:MS e2el:MS")
      ->type_name("NAME:MS");
}

}  // namespace

CLI::App* add_bench_serve(CLI::App& parent) {
  auto options = std::make_shared<BenchServeOptions>();
  CLI::App* app = parent.add_subcommand(
      "serve", "Measure throughput and latency of any server of OpenAI's API under load");
  app->add_option("--base-url", options->base_url, "URL of the server")->capture_default_str();
  app->add_option("--backend", options->backend,
                  "API: openai (completions) or openai-chat (chat completions)")
      ->check(CLI::IsMember({"openai", "openai-chat"}))
      ->capture_default_str();
  app->add_option("--endpoint", options->endpoint,
                  "Request path (default: the backend's path under /v1)");
  app->add_option("--model", options->workload.model,
                  "Model id in requests (default: the first of /v1/models)");
  app->add_option("--api-key", options->load.api_key, "API key, sent as Authorization: Bearer KEY");
  app->add_option("--ca-file", options->load.ca_file,
                  "CA certificates for TLS, in addition to the system's (PEM)")
      ->type_name("FILE");
  app->add_option("--timeout", options->timeout_seconds,
                  "Seconds without data from the server after which a request counts as failed")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_workload_options(*app, *options);
  add_load_options(*app, *options);
  app->add_option("--output", options->output,
                  "Output file for the results: JSON with vLLM's key names")
      ->type_name("FILE");
  app->add_flag("--save-detailed", options->detailed, "Add the times of every request to --output");
  app->footer("Meaning of the figures: docs/guide/serving.md");
  app->callback([options] { run(*options); });
  return app;
}

}  // namespace trireme
