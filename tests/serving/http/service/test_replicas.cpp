// Server with two replicas of its model, through HTTP.
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_replicas {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

class TwoReplicas : public testing::Test {
 protected:
  explicit TwoReplicas(const RecordedServerOptions& given = options()) : server(given) {}
  static std::string body(const std::string& prompt, int tokens, const std::string& more = "") {
    return concat(R"({"model":"m","temperature":0,"ignore_eos":true,"max_tokens":)", tokens,
                  R"(,"prompt":)", prompt, more, "}");
  }
  Response complete(const std::string& prompt, int tokens, const std::string& more = "") {
    return server.ask(post("/v1/completions", body(prompt, tokens, more)));
  }
  double metric(const std::string& name, size_t engine, const std::string& more = "") {
    const std::string text = server.ask(get("/metrics")).body;
    const std::string series =
        concat("\nvllm:", name, "{engine=\"", engine, "\",", more, "model_name=\"m\"} ");
    const size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size()));
  }

  // One request on each replica; returns the response of the one whose replica fails.
  Response lose_one(const char* more) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (Gate& gate : server.gates) {
      gate.hold_after(5);
      clients.push_back(std::make_unique<RawClient>(server.port()));
      clients.back()->send(
          post("/v1/completions", body(concat("[", clients.size(), "]"), 200, more)));
      EXPECT_TRUE(eventually([&] { return gate.is_shut(); }));
      if (*more != 0) {
        EXPECT_TRUE(clients.back()->receive_until("data: "));
      }
    }
    server.gates[1].fail();
    Response ended = clients[1]->response();
    for (const char* path : {"/health", "/health/ready"})
      EXPECT_EQ(server.ask(get(path)).status, 200) << path;
    server.gate.release();
    EXPECT_EQ(clients[0]->response().status, 200);
    EXPECT_EQ(complete("[7]", 5).status, 200);
    EXPECT_EQ(metric("request_success_total", 1, R"(finished_reason="error",)"), 1);
    EXPECT_EQ(metric("request_success_total", 0, R"(finished_reason="error",)"), 0);
    return ended;
  }

  static RecordedServerOptions options() {
    RecordedServerOptions two;
    two.replicas = 2;
    return two;
  }
  RecordedServer server;
};

TEST_F(TwoReplicas, ShareResponses) {
  const Response r = complete(R"(["ab","cd","ef","gh"])", 9);
  ASSERT_EQ(r.status, 200) << r.body;
  const Json choices = Json::parse(r.body)["choices"];
  const std::vector<std::string> prompts = {"ab", "cd", "ef", "gh"};
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string bytes = RecordedServer::continuation(prompts[i], 9);
    const std::string text = choices[i]["text"];
    // Bytes that are not valid UTF-8 are replaced.
    for (size_t at = 0; at < bytes.size() && (bytes[at] & 0x80) == 0; ++at)
      EXPECT_EQ(text[at], bytes[at]);
  }
  ASSERT_EQ(
      server.ask(post("/v1/embeddings", R"({"model":"m","input":[[1,2],[3,4],[5],[6]]})")).status,
      200);
  // Finished requests do not count in the choice of a replica, so that the split need not be even.
  const auto expect_shared = [&](const std::string& name, double all, const std::string& more) {
    EXPECT_GT(metric(name, 0, more), 0) << name;
    EXPECT_GT(metric(name, 1, more), 0) << name;
    EXPECT_EQ(metric(name, 0, more) + metric(name, 1, more), all) << name;
  };
  expect_shared("generation_tokens_total", 4 * 9, "");
  expect_shared("prompt_tokens_total", 8 + 6, "");
  expect_shared("request_success_total", 4, R"(finished_reason="length",)");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST_F(TwoReplicas, SearchBeamsOnOne) {
  const Response r = complete(R"("hi")", 6, R"(,"use_beam_search":true,"n":3)");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(metric("generation_tokens_total", 0), 18);
  EXPECT_EQ(metric("generation_tokens_total", 1), 0);
  EXPECT_GT(metric("iteration_tokens_total_count", 0), 0);
  EXPECT_EQ(metric("iteration_tokens_total_count", 1), 0);
}

TEST_F(TwoReplicas, LoseTheStreamsOfOneOnly) {
  const Response ended = lose_one(R"(,"stream":true)");
  EXPECT_EQ(ended.status, 200);
  EXPECT_NE(ended.body.find(R"("code":"engine_failure")"), std::string::npos) << ended.body;
}

TEST_F(TwoReplicas, LoseTheResponsesOfOneOnly) {
  const Response ended = lose_one("");
  EXPECT_EQ(ended.status, 503) << ended.body;
  EXPECT_EQ(ended.headers.at("Retry-After"), "1");
  for (const size_t engine : {0, 1}) server.engines[engine].interrupt("both are lost");
  EXPECT_EQ(server.ask(get("/health/ready")).status, 503);
  EXPECT_EQ(complete("[7]", 5).status, 503);
}

// Three replicas that run one sequence at a time, all busy.
class BusyReplicas : public TwoReplicas {
 protected:
  BusyReplicas() : TwoReplicas(busy()) {
    for (Gate& gate : server.gates) {
      gate.hold_after(5);
      running.push_back(ask(concat("[", running.size() + 1, "]"), 400));
      EXPECT_TRUE(eventually([&] { return gate.is_shut(); }));
    }
  }
  static RecordedServerOptions busy() {
    RecordedServerOptions three = options();
    three.replicas = 3;
    three.scheduler.max_sequences = 1;
    return three;
  }
  std::unique_ptr<RawClient> ask(const std::string& prompt, int tokens, const char* more = "") {
    auto client = std::make_unique<RawClient>(server.port());
    client->send(post("/v1/completions", body(prompt, tokens, more)));
    return client;
  }
  // The replica at which a request waits. An engine polls for new requests between two steps.
  size_t waits_at() {
    size_t found = 3;
    EXPECT_TRUE(eventually([&] {
      for (size_t engine = 0; engine < 3; ++engine) {
        server.gates[engine].hold_after(1);
        if (metric("num_requests_waiting", engine) > 0) found = engine;
      }
      return found < 3;
    }));
    return found;
  }
  size_t lose_where_it_waits() {
    const size_t lost = waits_at();
    server.gates[lost].fail();
    EXPECT_EQ(running[lost]->response().status, 503);
    return lost;
  }
  void expect_moved(const char* more) {
    const auto client = ask("[5,6]", 20, more);
    const size_t lost = lose_where_it_waits(), other = waits_at();
    EXPECT_NE(other, lost);
    server.gates[other].release();
    EXPECT_EQ(running[other]->response().status, 200);
    const Response r = client->response();
    EXPECT_EQ(r.status, 200) << r.body;
    EXPECT_NE(r.body.find(R"("finish_reason":"length")"), std::string::npos) << r.body;
    EXPECT_EQ(metric("request_success_total", lost, R"(finished_reason="error",)"), 1);
    EXPECT_EQ(metric("request_success_total", other, R"(finished_reason="error",)"), 0);
    EXPECT_EQ(metric("request_success_total", other, R"(finished_reason="length",)"), 2);
    EXPECT_EQ(metric("generation_tokens_total", other), 400 + 20);
    double entered = 0;
    for (size_t engine = 0; engine < 3; ++engine)
      entered += metric("request_params_n_count", engine);
    EXPECT_EQ(entered, 4);
  }

  std::vector<std::unique_ptr<RawClient>> running;
};

TEST_F(BusyReplicas, MoveWhatWaitsOnALostOne) { expect_moved(""); }

TEST_F(BusyReplicas, MoveAStreamThatWaitsOnALostOne) { expect_moved(R"(,"stream":true)"); }

// Some of several sequences may have started.
TEST_F(BusyReplicas, MoveOneTextOnly) {
  const auto client = ask("[5,6]", 20, R"(,"n":2)");
  lose_where_it_waits();
  const Response r = client->response();
  EXPECT_EQ(r.status, 503) << r.body;
  EXPECT_EQ(r.headers.at("Retry-After"), "1");
}

TEST_F(BusyReplicas, MoveItOnce) {
  const auto client = ask("[5,6]", 20);
  const size_t first = lose_where_it_waits(), second = lose_where_it_waits();
  EXPECT_NE(first, second);
  EXPECT_EQ(client->response().status, 503);
}

}  // namespace
}  // namespace trireme::test_replicas
