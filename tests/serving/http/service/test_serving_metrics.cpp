// Prometheus metrics, except for the exact counts of test_service.cpp.
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_serving_metrics {
namespace {

using namespace test;

class Metrics : public testing::Test {
 protected:
  // Value of an engine series, by its name after "vllm:"; -1: no such series.
  double value(const std::string& name, const std::string& more = "") const {
    const std::string series =
        concat("\nvllm:", name, "{engine=\"0\",model_name=\"m\"", more, "} ");
    const size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size()));
  }
  void look() { text = server.ask(get("/metrics")).body; }

  RecordedServer server;
  std::string text;
};

// Metric names of a stock vLLM server (0.26): a dashboard panel whose series is missing is empty,
// without any notice.
TEST_F(Metrics, HaveTheNamesOfDashboards) {
  ASSERT_EQ(server.ask(post("/v1/embeddings", R"({"model":"m","input":"a"})")).status, 200);
  look();
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "num_requests_waiting_by_reason",
                           "kv_cache_usage_perc",
                           "cache_config_info",
                           "engine_sleep_state",
                           "prompt_tokens_total",
                           "prompt_tokens_by_source_total",
                           "prompt_tokens_cached_total",
                           "generation_tokens_total",
                           "request_success_total",
                           "num_preemptions_total",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "external_prefix_cache_queries_total",
                           "external_prefix_cache_hits_total",
                           "mm_cache_queries_total",
                           "mm_cache_hits_total",
                           "estimated_flops_per_gpu_total",
                           "estimated_read_bytes_per_gpu_total",
                           "estimated_write_bytes_per_gpu_total",
                           "time_to_first_token_seconds_bucket",
                           "inter_token_latency_seconds_bucket",
                           "request_time_per_output_token_seconds_bucket",
                           "e2e_request_latency_seconds_bucket",
                           "request_queue_time_seconds_bucket",
                           "request_prefill_time_seconds_bucket",
                           "request_decode_time_seconds_bucket",
                           "request_inference_time_seconds_bucket",
                           "request_prompt_tokens_bucket",
                           "request_generation_tokens_bucket",
                           "request_max_num_generation_tokens_bucket",
                           "request_params_n_bucket",
                           "request_params_max_tokens_bucket",
                           "request_prefill_kv_computed_tokens_bucket",
                           "iteration_tokens_total_bucket"})
    EXPECT_NE(text.find(concat("\nvllm:", name, "{")), std::string::npos) << name;
  EXPECT_EQ(value("engine_sleep_state", R"(,sleep_state="awake")"), 1);
}

// As in vLLM's own dashboard, which still uses the old names. They are exported only on request.
TEST(OldMetrics, HaveTheValuesOfTheNewOnes) {
  const std::pair<const char*, const char*> names[] = {
      {"time_per_output_token_seconds_bucket", "inter_token_latency_seconds_bucket"},
      {"time_per_output_token_seconds_sum", "inter_token_latency_seconds_sum"},
      {"time_per_output_token_seconds_count", "inter_token_latency_seconds_count"},
      {"gpu_cache_usage_perc", "kv_cache_usage_perc"},
      {"gpu_prefix_cache_queries", "prefix_cache_queries_total"},
      {"gpu_prefix_cache_queries_total", "prefix_cache_queries_total"},
      {"gpu_prefix_cache_hits", "prefix_cache_hits_total"},
      {"gpu_prefix_cache_hits_total", "prefix_cache_hits_total"},
  };
  for (const bool asked : {false, true}) {
    RecordedServerOptions options;
    options.old_names = asked;
    RecordedServer server(options);
    const std::string body = concat(R"({"model":"m","max_tokens":20,"ignore_eos":true,"prompt":")",
                                    std::string(24, 'p'), "\"}");
    for (int i = 0; i < 2; ++i) ASSERT_EQ(server.ask(post("/v1/completions", body)).status, 200);
    RawClient client(server.port());
    server.gate.hold();
    client.send(post("/v1/completions", body));
    server.gate.hold_after(2);
    ASSERT_TRUE(eventually([&] { return server.gate.is_shut(); }));
    const std::string text = server.ask(get("/metrics")).body;
    const auto lines_of = [&](const std::string& name) {
      std::string out;
      for (size_t at = 0;
           (at = text.find(concat("\nvllm:", name, "{"), at)) != std::string::npos;) {
        at += 6 + name.size();
        out += text.substr(at, text.find('\n', at) - at) + "\n";
      }
      return out;
    };
    for (const auto& [old, name] : names) {
      EXPECT_NE(lines_of(name), "") << name;
      EXPECT_EQ(lines_of(old), asked ? lines_of(name) : "") << old;
    }
    EXPECT_EQ(lines_of("num_requests_swapped"), asked ? "{engine=\"0\",model_name=\"m\"} 0\n" : "");
    EXPECT_EQ(lines_of("kv_cache_usage_perc").find("} 0\n"), std::string::npos);
    EXPECT_EQ(lines_of("prefix_cache_hits_total").find("} 0\n"), std::string::npos);
    server.gate.release();
    EXPECT_EQ(client.response().status, 200);
  }
}

// Gateways route requests to servers with their adapter, including adapters fixed at
// start-up.
TEST(MetricsOfAdapters, NameThoseOfRequests) {
  RecordedServerOptions options;
  options.modules = {"sql", "chat", "poems"};
  RecordedServer server(options);
  const auto reported = [&](const std::string& running) {
    const std::string series =
        concat("\nvllm:lora_requests_info{engine=\"0\",max_lora=\"3\",model_name=\"m\",",
               "running_lora_adapters=\"", running, "\",waiting_lora_adapters=\"\"} ");
    const std::string text = server.ask(get("/metrics")).body;
    const size_t at = text.find(series);
    return at != std::string::npos && std::stod(text.substr(at + series.size())) > 1.7e9;
  };
  EXPECT_TRUE(reported(""));
  server.gate.hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (const char* name : {"poems", "sql"}) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(
        post("/v1/completions",
             concat(R"({"prompt":"a","max_tokens":400,"ignore_eos":true,"model":")", name, "\"}")));
  }
  ASSERT_TRUE(eventually([&] { return server.sequences() == 2; }));
  EXPECT_TRUE(eventually([&] {
    // One more step until both run; the first has enough tokens left not to finish before.
    server.gate.hold_after(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return reported("sql,poems");
  }));
  server.gate.release();
  for (const auto& client : clients) EXPECT_EQ(client->response().status, 200);
  EXPECT_TRUE(eventually([&] { return reported(""); }));
}

TEST_F(Metrics, DivideTheTimeOfARequest) {
  const std::string asked = concat(R"({"model":"m","max_tokens":11,"ignore_eos":true,"prompt":")",
                                   std::string(24, 'p'), "\"}");
  for (int i = 0; i < 2; ++i) ASSERT_EQ(server.ask(post("/v1/completions", asked)).status, 200);
  look();
  for (const char* name : {"queue", "prefill", "decode", "inference"})
    EXPECT_EQ(value(concat("request_", name, "_time_seconds_count")), 2) << name;
  const auto seconds = [&](const char* name) {
    return value(concat("request_", name, "_time_seconds_sum"));
  };
  EXPECT_GT(seconds("queue"), 0);
  EXPECT_GT(seconds("prefill"), 0);
  EXPECT_NEAR(seconds("inference"), seconds("prefill") + seconds("decode"), 1e-6);
  EXPECT_LE(seconds("queue") + seconds("prefill"), value("time_to_first_token_seconds_sum") + 1e-6);
  // The second request finds whole blocks of the first's prompt, except the last token's.
  const double computed = value("request_prefill_kv_computed_tokens_sum");
  EXPECT_EQ(computed, 24 + 24 - 16);
  EXPECT_EQ(value("prompt_tokens_by_source_total", R"(,source="local_compute")"), computed);
  EXPECT_EQ(value("prompt_tokens_by_source_total", R"(,source="local_cache_hit")"), 16);
}

TEST_F(Metrics, CountChoicesOfAPromptAndEmbeddings) {
  // Four sequences; each prompt has one longest sequence.
  const char* asked =
      R"({"model":"m","prompt":[[1,2,3],[4,5]],"n":2,"max_tokens":9,"ignore_eos":true})";
  ASSERT_EQ(server.ask(post("/v1/completions", asked)).status, 200);
  ASSERT_EQ(server.ask(post("/v1/embeddings", R"({"model":"m","input":[[1,2],[3]]})")).status, 200);
  look();
  EXPECT_EQ(value("request_generation_tokens_count"), 4);
  EXPECT_EQ(value("request_generation_tokens_sum"), 36);
  EXPECT_EQ(value("request_max_num_generation_tokens_count"), 2);
  EXPECT_EQ(value("request_max_num_generation_tokens_sum"), 18);
  EXPECT_EQ(value("request_prompt_tokens_count"), 4);
  EXPECT_EQ(value("prompt_tokens_total"), 3 + 2 + 2 + 1);
}

// Requests that have not reached an engine yet.
class MetricsOnTheWay : public Metrics {
 protected:
  std::unique_ptr<ResponseProducer> asked(const std::string& more) {
    HttpRequest request;
    request.body = R"({"model":"m","max_tokens":3,)" + more;
    std::string none;
    return routes.find("POST", "/v1/completions", none)->handle(request).pending;
  }
  // Finished sequences by reason: stop, length, abort, error.
  std::vector<double> ends() {
    look();
    std::vector<double> out;
    for (const char* reason : {"stop", "length", "abort", "error"}) {
      const std::string series =
          concat("vllm:request_success_total{engine=\"0\",finished_reason=\"", reason,
                 "\",model_name=\"m\"} ");
      out.push_back(std::stod(text.substr(text.find(series) + series.size())));
    }
    return out;
  }
  using Ends = std::vector<double>;

  const Routes routes = server.service.routes();
  const std::string of_long = R"("n":40,"prompt":")" + std::string(450, 'p') + "\"}";
};

// Wherever a request is when its client disconnects, it is counted exactly once.
TEST_F(MetricsOnTheWay, CountWhoLeaves) {
  ASSERT_GT(40 * 450 * int64_t{sizeof(int32_t)}, kQuickBytes);
  asked(of_long).reset();  // a worker has read it, and its client is gone
  EXPECT_EQ(ends(), (Ends{0, 0, 40, 0}));
  auto waiting = asked(of_long);
  waiting->start([] {});
  const auto work = waiting->take().work;
  ASSERT_TRUE(work);  // no worker is free for it
  waiting.reset();
  EXPECT_EQ(ends(), (Ends{0, 0, 80, 0}));
  auto entered = asked(of_long);
  entered->start([] {});
  server.gate.hold();
  entered->take().work();
  entered.reset();
  EXPECT_EQ(ends(), (Ends{0, 0, 120, 0}));
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// A request that the server could not submit to an engine is not counted as aborted.
TEST_F(MetricsOnTheWay, CountWhatFailsAsErrors) {
  auto failing = asked(of_long);
  failing->start([] {});
  ASSERT_TRUE(failing->take().work);
  failing->failed();
  EXPECT_EQ(ends(), (Ends{0, 0, 0, 40}));
  failing.reset();
  EXPECT_EQ(ends(), (Ends{0, 0, 0, 40}));
  auto beams = asked(R"("n":2,"use_beam_search":true,"temperature":0,"prompt":"p"})");
  beams->failed();
  beams.reset();
  EXPECT_EQ(ends(), (Ends{0, 0, 0, 42}));
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// As with requests that vLLM's frontend refuses.
TEST_F(MetricsOnTheWay, CountNothingThatIsRefused) {
  const auto status = [&](const std::string& body) {
    return server.ask(post("/v1/completions", body)).status;
  };
  EXPECT_EQ(status(R"({"model":"an-adapter","prompt":"a"})"), 404);
  EXPECT_EQ(status(R"({"model":"m","prompt":")" + std::string(600, 'p') + "\"}"), 400);
  EXPECT_EQ(status(R"({"model":"m","prompt":"a","structured_outputs":{"regex":"(?=a)b"}})"), 400);
  EXPECT_EQ(status(R"({"model":"m","prompt":"a","max_tokens":3,"ignore_eos":true})"), 200);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_EQ(ends(), (Ends{0, 1, 0, 0}));
}

}  // namespace
}  // namespace trireme::test_serving_metrics
