// Beam search over HTTP. After any text one token has -1.5, the token after it -1.75, and so on:
// among texts of one length the best has none of the others, the next ones have one.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_beam_task {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

std::string beams(int tokens, const std::string& more) {
  return post("/v1/completions",
              concat(R"({"model":"m","prompt":"hi","use_beam_search":true,"ignore_eos":true,)",
                     R"("max_tokens":)", tokens, more, "}"));
}

double logprob_of(const Json& choice) {
  double sum = 0;
  for (const Json& logprob : choice["logprobs"]["token_logprobs"])
    if (!logprob.is_null()) sum += logprob.get<double>();
  return sum;
}

TEST(Beams, ComeInTheOrderOfTheirScores) {
  RecordedServer server;
  const Response r = server.ask(
      beams(9, R"(,"n":4,"logprobs":3,"prompt_logprobs":0,"return_tokens_as_token_ids":true)"));
  ASSERT_EQ(r.status, 200) << r.body;
  const Json body = Json::parse(r.body);
  ASSERT_EQ(body["choices"].size(), 4u);
  std::set<std::string> texts;
  for (size_t i = 0; i < 4; ++i) {
    const Json& choice = body["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), 9u);
    EXPECT_EQ(choice["prompt_logprobs"].size(), 2u);
    EXPECT_NEAR(logprob_of(choice), -1.5 * 9 - (i > 0 ? 0.25 : 0), 1e-9) << i;
    texts.insert(choice["logprobs"]["tokens"].dump());
  }
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(body["usage"]["completion_tokens"], 36);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Beams, AreTheMostProbableTextWhereThereIsOne) {
  RecordedServer server;
  const auto text = [&](const std::string& request) {
    return Json::parse(server.ask(request).body)["choices"][0]["text"].get<std::string>();
  };
  const std::string greedy = text(
      post("/v1/completions", R"({"model":"m","prompt":"hi","temperature":0,"max_tokens":20})"));
  EXPECT_EQ(text(beams(20, "")), greedy);
  EXPECT_EQ(text(beams(20, R"(,"n":1,"best_of":5)")), greedy);
  EXPECT_EQ(text(beams(20, R"(,"n":1,"echo":true)")), "hi" + greedy);
  const Response chat = server.ask(post(
      "/v1/chat/completions",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"use_beam_search":true,"n":2,)"
      R"("max_tokens":5})"));
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(Json::parse(chat.body)["choices"].size(), 2u);
}

// A worker copies long prompts for each beam of each round.
TEST(Beams, OfLongPromptsAreTheSame) {
  RecordedServerOptions options;
  options.scheduler.max_model_len = 4096;
  RecordedServer server(options);
  const std::string prompt(3000, 'a');
  const Response greedy = server.ask(
      post("/v1/completions",
           concat(R"({"model":"m","temperature":0,"max_tokens":9,"prompt":")", prompt, R"("})")));
  const Response r = server.ask(
      post("/v1/completions", concat(R"({"model":"m","use_beam_search":true,"n":8,"max_tokens":9,)",
                                     R"("ignore_eos":true,"prompt":")", prompt, R"("})")));
  ASSERT_EQ(r.status, 200) << r.body;
  const Json body = Json::parse(r.body);
  ASSERT_EQ(body["choices"].size(), 8u);
  EXPECT_EQ(body["choices"][0]["text"], Json::parse(greedy.body)["choices"][0]["text"]);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Beams, OfSeveralPromptsAreEachTheirOwn) {
  RecordedServer server;
  const auto ask = [&](const std::string& prompt) {
    const Response r = server.ask(post(
        "/v1/completions", concat(R"({"model":"m","use_beam_search":true,"n":2,"max_tokens":6,)",
                                  R"("prompt":)", prompt, "}")));
    return Json::parse(r.body);
  };
  const Json both = ask(R"(["hi","ho"])"), second = ask(R"("ho")");
  ASSERT_EQ(both["choices"].size(), 4u) << both.dump();
  for (const size_t i : {0, 1})
    EXPECT_EQ(both["choices"][2 + i]["text"], second["choices"][i]["text"]);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 4);
}

TEST(Beams, AreCancelledForWhoeverGoesAway) {
  RecordedServer server;
  server.gate.hold_after(3);
  {
    RawClient client(server.port());
    client.send(beams(400, R"(,"n":4)"));
    ASSERT_TRUE(eventually([&] { return server.gate.is_shut() && server.in_engine() > 0; }));
  }
  EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  const std::string metrics = server.ask(get("/metrics")).body;
  EXPECT_NE(
      metrics.find("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name="
                   "\"m\"} 4"),
      std::string::npos)
      << metrics;
}

TEST(Beams, EndWithTheEngine) {
  RecordedServer server;
  server.gate.hold_after(3);
  RawClient client(server.port());
  client.send(beams(400, R"(,"n":4)"));
  ASSERT_TRUE(eventually([&] { return server.gate.is_shut() && server.in_engine() > 0; }));
  server.gate.fail();
  const Response r = client.response();
  EXPECT_EQ(r.status, 503) << r.body;
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "engine_failure");
  EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
}

TEST(Beams, AreHeldOnlyUpToABound) {
  RecordedServerOptions options;
  options.responses = {.whole = 60'000, .always = 20'000, .all = 100'000};
  RecordedServer server(options);
  EXPECT_EQ(server.ask(beams(20, R"(,"n":4)")).status, 200);
  const Response r = server.ask(beams(100, R"(,"n":8,"logprobs":20)"));
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "answer_too_large");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Beams, AreCounted) {
  RecordedServer server;
  ASSERT_EQ(server.ask(beams(7, R"(,"n":3)")).status, 200);
  ASSERT_TRUE(eventually([&] { return server.is_quiet(); }));
  const std::string metrics = server.ask(get("/metrics")).body;
  for (const char* series : {"vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 21",
                             "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 2",
                             "vllm:request_success_total{engine=\"0\",finished_reason=\"length\","
                             "model_name=\"m\"} 3"})
    EXPECT_NE(metrics.find(concat("\n", series, "\n")), std::string::npos) << series << metrics;
}

}  // namespace
}  // namespace trireme::test_beam_task
