// OpenAI-compatible API on an engine, through HTTP.
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/core/utf8.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_service {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

std::string as_text(std::string bytes) {
  return repaired_utf8(std::move(bytes), Utf8Repair::kMaximalPart);
}

std::string completion(int tokens, const std::string& more = "", const std::string& prompt = "hi") {
  return concat(R"({"model":"m","prompt":)", Json(prompt).dump(), R"(,"max_tokens":)", tokens, more,
                "}");
}
std::string chat(const std::string& more = "") {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + more + "}";
}

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (body.compare(at, 6, "data: ") == 0) out.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return out;
}

TEST(Service, CompletesAPrompt) {
  RecordedServer server;
  const Response r = server.ask(post("/v1/completions", completion(12)));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.headers.at("Content-Type"), "application/json");
  const Json body = Json::parse(r.body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["choices"][0]["text"], as_text(RecordedServer::continuation("hi", 12)));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"].dump(), R"({"prompt_tokens":2,"completion_tokens":12,"total_tokens":14,)"
                                  R"("prompt_tokens_details":{"cached_tokens":0}})");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, StreamsTheSameText) {
  RecordedServer server;
  const Response r =
      server.ask(post("/v1/completions",
                      completion(40, R"(,"stream":true,"stream_options":{"include_usage":true})")));
  ASSERT_EQ(r.status, 200);
  EXPECT_TRUE(r.complete);
  const std::vector<std::string> events = events_of(r.body);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  int finishes = 0;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    text += choice["text"].get<std::string>();
    finishes += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(finishes, 1);
  EXPECT_EQ(text, as_text(RecordedServer::continuation("hi", 40)));
  EXPECT_EQ(Json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 40);
}

TEST(Service, StreamsAChatByteForByte) {
  RecordedServer server;
  RawClient client(server.port());
  client.send(post("/v1/chat/completions",
                   chat(R"(,"max_tokens":1,"stream":true,"stream_options":{"include_usage":true})"),
                   "X-Request-Id: one\r\n"));
  const Response r = client.response();
  EXPECT_EQ(r.head.substr(0, r.head.find("Date:")),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: "
            "no-cache\r\n"
            "X-Request-Id: one\r\nTransfer-Encoding: chunked\r\n");
  const std::string created = concat(Json::parse(events_of(r.body)[0])["created"].get<int64_t>());
  const std::string head =
      R"(data: {"id":"chatcmpl-one","object":"chat.completion.chunk","created":)" + created +
      R"(,"model":"m","system_fingerprint":"f","choices":[)";
  const std::string prompt = "user:hi";
  // The template's own special token is one token: 256 in the byte tokenizer.
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  tokens.push_back(256);
  const std::string letter = as_text(std::string(1, static_cast<char>(next_of(tokens, 256))));
  EXPECT_EQ(
      r.body,
      head +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],)"
          R"("usage":null})"
          "\n\n" +
          head + R"({"index":0,"delta":{"content":)" + Json(letter).dump() +
          R"(},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null})"
          "\n\n" +
          head +
          R"(],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9,)"
          R"("prompt_tokens_details":{"cached_tokens":0}}})"
          "\n\n" +
          "data: [DONE]\n\n");
}

TEST(Service, GivesSeveralChoicesOfSeveralPrompts) {
  RecordedServer server;
  const Response r = server.ask(
      post("/v1/completions",
           R"({"model":"m","prompt":["hi",[104,111]],"n":2,"max_tokens":5,"temperature":0})"));
  const Json body = Json::parse(r.body);
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"],
              as_text(RecordedServer::continuation(i < 2 ? "hi" : "ho", 5)));
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 20);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, EndsAtStopStringsAndFreesWhatWasLeft) {
  RecordedServer server;
  // The first two consecutive letters are the stop string.
  const std::string text = RecordedServer::continuation("hi", 300);
  size_t at = 0;
  const auto ascii = [&](size_t i) { return text[i] >= 'a' && text[i] <= 'z'; };
  while (at + 1 < text.size() && !(ascii(at) && ascii(at + 1))) ++at;
  ASSERT_LT(at + 1, text.size());
  const std::string stop = text.substr(at, 2);
  const Response r = server.ask(
      post("/v1/completions", completion(300, concat(R"(,"stop":)", Json(stop).dump()))));
  const Json body = Json::parse(r.body);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  const std::string whole = as_text(text);
  EXPECT_EQ(body["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, EchoesPromptsWithLogProbabilities) {
  RecordedServer server;
  const Response r = server.ask(
      post("/v1/completions", completion(0, R"(,"echo":true,"logprobs":0)", "hello there")));
  const Json body = Json::parse(r.body);
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(body["choices"][0]["text"], "hello there");
  const Json& logprobs = body["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["token_logprobs"].size(), 11u);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][10], -2.5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST(Service, RefusesWithTheFieldAtFault) {
  RecordedServer server;
  const auto error = [&](const std::string& path, const std::string& body) {
    const Response r = server.ask(post(path, body));
    const Json e = Json::parse(r.body)["error"];
    EXPECT_EQ(e.size(), 4u);
    return concat(r.status, " ", e["param"].is_null() ? "-" : e["param"].get<std::string>(), " ",
                  e["code"].is_null() ? "-" : e["code"].get<std::string>());
  };
  EXPECT_EQ(error("/v1/completions", "{"), "400 - invalid_json");
  EXPECT_EQ(error("/v1/completions", R"({"model":"x","prompt":"hi"})"),
            "404 model model_not_found");
  EXPECT_EQ(error("/v1/completions", completion(5, R"(,"n":129)")), "400 n invalid_value");
  EXPECT_EQ(error("/v1/completions", completion(5, "", "")), "400 prompt invalid_value");
  EXPECT_EQ(error("/v1/completions", R"({"model":"m","prompt":[257]})"),
            "400 prompt invalid_value");
  EXPECT_EQ(error("/v1/completions", R"({"model":"m","prompt":[-1]})"), "400 prompt invalid_value");
  EXPECT_EQ(error("/v1/completions", completion(5, R"(,"structured_outputs":{"regex":"a**"})")),
            "400 structured_outputs invalid_value");
  EXPECT_EQ(error("/v1/chat/completions",
                  chat(R"(,"tools":[{"type":"function","function":{"name":"f"}}])")),
            "501 tools not_implemented");
  EXPECT_EQ(error("/v1/embeddings", R"({"model":"m","input":"x","dimensions":4})"),
            "400 dimensions invalid_value");
  EXPECT_EQ(error("/v1/embeddings", R"({"model":"m","input":["x",""]})"),
            "400 input invalid_value");
  EXPECT_EQ(server.ask(post("/v1/completions", R"({"model":"x","prompt":"hi"})")).body,
            R"({"error":{"message":"The model `x` does not exist","type":"invalid_request_error",)"
            R"("param":"model","code":"model_not_found"}})");
}

// The executor's embedding of a text is (next token, 3, 4).
TEST(Service, HoldsTheLengthOfTheModel) {
  RecordedServer server;
  const auto status = [&](size_t prompt, int tokens) {
    return server.ask(post("/v1/completions", completion(tokens, "", std::string(prompt, 'p'))))
        .status;
  };
  EXPECT_EQ(status(511, 1), 200);
  EXPECT_EQ(status(512, 1), 400);
  EXPECT_EQ(status(5120, 1), 400);
  EXPECT_EQ(status(500, 12), 200);
  EXPECT_EQ(status(500, 13), 400);
  const Response r = server.ask(post("/v1/completions", completion(1, "", std::string(600, 'p'))));
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "context_length_exceeded");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, KeepsSpecialTokensInMessagesAsText) {
  RecordedServer server;
  const auto count = [&](const std::string& content) {
    const Response r = server.ask(post(
        "/tokenize", R"({"messages":[{"role":"user","content":)" + Json(content).dump() + "}]}"));
    return Json::parse(r.body)["tokens"].get<std::vector<int32_t>>();
  };
  const std::vector<int32_t> tokens = count("a<|endoftext|>b");
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 256), 1);  // the template's token
  EXPECT_EQ(tokens.size(), std::string("user:a<|endoftext|>b").size() + 1);
  const Response r = server.ask(post("/tokenize", R"({"prompt":"<|endoftext|>"})"));
  EXPECT_EQ(Json::parse(r.body)["count"], 13);
}

TEST(Service, TokenizesAndBack) {
  RecordedServer server;
  EXPECT_EQ(server.ask(post("/tokenize", R"({"prompt":"hi","return_token_strs":true})")).body,
            R"({"count":2,"max_model_len":512,"tokens":[104,105],"token_strs":["h","i"]})");
  EXPECT_EQ(server.ask(post("/detokenize", R"({"tokens":[104,105,195]})")).body,
            "{\"prompt\":\"hi\xEF\xBF\xBD\"}");
  EXPECT_EQ(server.ask(post("/detokenize", R"({"tokens":[257]})")).status, 400);
}

TEST(Service, ReportsItsModelsAndItsVersion) {
  RecordedServer server;
  EXPECT_EQ(Json::parse(server.ask(get("/v1/models")).body)["data"][0]["id"], "m");
  EXPECT_EQ(Json::parse(server.ask(get("/v1/models/m")).body)["id"], "m");
  EXPECT_EQ(Json::parse(server.ask(get("/v1/models/%6D")).body)["id"], "m");
  EXPECT_EQ(server.ask(get("/v1/models/x")).status, 404);
  EXPECT_EQ(server.ask(get("/version")).body, R"({"version":"1.0"})");
  EXPECT_TRUE(Json::parse(server.ask(get("/openapi.json")).body).contains("paths"));
  EXPECT_EQ(server.ask(get("/health")).body, "");
}

// --- load and connections ---

TEST(Service, RefusesWhatTheQueueCannotHold) {
  RecordedServerOptions options;
  options.admission = {.running = 2, .waiting = 2};
  RecordedServer server(options);
  server.gate.hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(post("/v1/completions", completion(5)));
    ASSERT_TRUE(eventually([&] { return server.sequences() == i + 1; }));
  }
  const Response r = server.ask(post("/v1/completions", completion(5)));
  EXPECT_EQ(r.status, 429);
  EXPECT_EQ(r.headers.at("Retry-After"), "1");
  EXPECT_EQ(r.headers.at("retry-after-ms"), "250");
  const std::string body =
      R"~({"error":{"message":"queue full (2 waiting)","type":"rate_limit_error","param":null,)~"
      R"~("code":"queue_full"}})~";
  EXPECT_EQ(r.body, body);
  EXPECT_EQ(server.ask(get("/health/ready")).status, 200);
  server.gate.release();
  for (const auto& client : clients) EXPECT_EQ(client->response().status, 200);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_EQ(server.ask(post("/v1/completions", completion(5))).status, 200);
}

TEST(Service, CountsChoicesBeforeItTokenizes) {
  RecordedServerOptions options;
  options.admission = {.running = 2, .waiting = 2};
  RecordedServer server(options);
  EXPECT_EQ(server.ask(post("/v1/completions", completion(1, R"(,"n":4)"))).status, 200);
  EXPECT_EQ(server.ask(post("/v1/completions", completion(1, R"(,"n":5)"))).status, 429);
}

TEST(Service, CancelsForWhoeverGoesAway) {
  RecordedServer server;
  enum class Way { kClose, kReset, kCloseHalf };
  for (const bool stream : {false, true}) {
    for (const Way way : {Way::kClose, Way::kReset, Way::kCloseHalf}) {
      server.gate.hold();
      RawClient client(server.port());
      client.send(post("/v1/completions", completion(400, stream ? R"(,"stream":true)" : "")));
      ASSERT_TRUE(eventually([&] { return server.in_engine() == 1; }));
      if (way == Way::kReset)
        client.reset();
      else if (way == Way::kClose)
        client.hang_up();
      else
        client.shut_down_sending();
      // Detected while the engine is idle.
      EXPECT_TRUE(eventually(
          [&] { return server.sequences() == 0 && server.server->counts().exchanges == 0; }));
      server.gate.release();
      EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
    }
  }
  const std::string metrics = server.ask(get("/metrics")).body;
  EXPECT_NE(
      metrics.find(
          R"(vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 6)"),
      std::string::npos);
}

TEST(Service, SurvivesAStormOfDisconnects) {
  RecordedServerOptions options;
  options.admission = {.running = 8, .waiting = 200};
  RecordedServer server(options);
  std::mt19937 random(3);
  const std::string expected = as_text(RecordedServer::continuation("hi", 30));
  for (int round = 0; round < 6; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 40; ++i) {
      clients.push_back(std::make_unique<RawClient>(server.port()));
      const std::string more =
          concat(random() % 2 == 0 ? R"(,"stream":true)" : "", R"(,"n":)", 1 + random() % 2);
      clients.back()->send(
          post("/v1/completions", completion(200, more, std::string(1 + random() % 50, 'p'))));
    }
    for (const auto& client : clients) {
      if (random() % 3 == 0) client->receive();
      if (random() % 2 == 0)
        client->reset();
      else
        client->hang_up();
    }
    const Response good = server.ask(post("/v1/completions", completion(30)));
    ASSERT_EQ(good.status, 200);
    EXPECT_EQ(Json::parse(good.body)["choices"][0]["text"], expected);
  }
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_TRUE(eventually([&] { return server.server->counts().connections == 0; }));
}

TEST(Service, CancelsForWhoeverReadsNothing) {
  RecordedServerOptions options;
  options.http.limits.stall_time = milliseconds(200);
  options.scheduler.max_model_len = 8192;
  options.blocks = 8192;
  RecordedServer server(options);
  RawClient client(server.port(), 1024);
  client.send(post("/v1/completions", completion(8000, R"(,"stream":true,"logprobs":20,"n":8)")));
  ASSERT_TRUE(client.receive());
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_TRUE(eventually([&] { return server.server->counts().connections == 0; }));
}

TEST(Service, HoldsOnlySoMuchForWhoReadsSlowly) {
  RecordedServerOptions options;
  options.scheduler.max_model_len = 8192;
  options.blocks = 8192;
  options.responses.unread = 100 << 10;
  RecordedServer server(options);
  server.gate.hold_after(3);
  RawClient client(server.port(), 64 << 10);
  client.send(post("/v1/completions", completion(8000, R"(,"stream":true,"n":8)")));
  ASSERT_TRUE(client.receive());
  server.gate.release();
  // It is not computed further while the client is still connected.
  EXPECT_TRUE(eventually([&] { return server.in_engine() == 0; }));
  const Response r = client.response();
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(Json::parse(events_of(r.body).back())["error"]["code"], "client_too_slow");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, HoldsOnlySoMuchOfWholeResponses) {
  RecordedServerOptions options;
  options.responses = {.whole = 60'000, .always = 20'000, .all = 100'000};
  RecordedServer server(options);
  const auto code = [&](int tokens, const char* more) {
    // The memory of the previous response is released shortly after its last byte.
    EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
    const Response r = server.ask(post("/v1/completions", completion(tokens, more)));
    return r.status == 200
               ? "200"
               : concat(r.status, " ", Json::parse(r.body)["error"]["code"].get<std::string>());
  };
  EXPECT_EQ(code(20, R"(,"logprobs":20)"), "200");
  EXPECT_EQ(code(40, R"(,"logprobs":20)"), "400 answer_too_large");
  EXPECT_EQ(code(40, ""), "200");
  EXPECT_EQ(code(40, R"(,"logprobs":20,"stream":true)"), "200");
  // Log-probabilities of a prompt are returned with each of its choices.
  const std::string prompt(20, 'p');
  const auto of_prompt = [&](int n) {
    EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
    return server
        .ask(post("/v1/completions",
                  completion(1, concat(R"(,"prompt_logprobs":5,"n":)", n), prompt)))
        .status;
  };
  EXPECT_EQ(of_prompt(1), 200);
  EXPECT_EQ(of_prompt(8), 400);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  // In a stream, the bytes to be written at a time.
  const std::string longer(450, 'p');
  options.responses = {.whole = 1'500, .always = 500, .all = 100'000};
  RecordedServer narrow(options);
  for (const auto& [more, status] :
       {std::pair(R"(,"stream":true)", 200), {R"(,"stream":true,"return_token_ids":true)", 400}}) {
    EXPECT_EQ(narrow.ask(post("/v1/completions", completion(1, more, longer))).status, status);
    EXPECT_TRUE(eventually([&] { return narrow.is_quiet(); }));
  }
  options.responses = {.whole = 60'000, .always = 20'000, .all = 10'000};
  RecordedServer small(options);
  const Response r = small.ask(post("/v1/completions", completion(20, R"(,"logprobs":20)")));
  EXPECT_EQ(r.status, 503);
  EXPECT_TRUE(eventually([&] { return small.is_quiet(); }));
  EXPECT_EQ(small.ask(post("/v1/completions", completion(9, R"(,"logprobs":20)"))).status, 200);
}

TEST(Service, TakesPrioritiesOnlyWhereItHasThem) {
  RecordedServerOptions options;
  const std::string first = completion(3, R"(,"priority":-1)");
  const Response r = RecordedServer(options).ask(post("/v1/completions", first));
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(Json::parse(r.body)["error"]["param"], "priority");
  EXPECT_EQ(RecordedServer(options)
                .ask(post("/v1/completions", completion(3, R"(,"priority":0)")))
                .status,
            200);
  options.requests.has_priorities = true;
  EXPECT_EQ(RecordedServer(options).ask(post("/v1/completions", first)).status, 200);
}

TEST(Service, ReportsNothingOfItsLibraries) {
  RecordedServer server;
  for (const char* body :
       {"{", R"({"a":1e400})", "{\"a\":\"\xff\"}", R"({"a":"\ud800"})", "[1,]", ""}) {
    const Response r = server.ask(post("/v1/completions", body));
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.body.find("exception"), std::string::npos) << r.body;
    EXPECT_EQ(r.body.find("nlohmann"), std::string::npos) << r.body;
  }
}

TEST(Service, PingsAStreamThatIsSilent) {
  RecordedServerOptions options;
  options.http.limits.ping_time = milliseconds(30);
  RecordedServer server(options);
  server.gate.hold_after(5);
  RawClient client(server.port());
  client.send(post("/v1/completions", completion(400, R"(,"stream":true)")));
  EXPECT_TRUE(client.receive_until(": ping\n\n"));
  server.gate.release();
  EXPECT_TRUE(client.receive_until("data: [DONE]\n\n"));
}

TEST(Service, KeepsToTheTimeOfARequest) {
  RecordedServer server;
  server.gate.hold();
  const Response r =
      server.ask(post("/v1/completions", completion(5), "X-Request-Timeout-Ms: 50\r\n"));
  EXPECT_EQ(r.status, 504);
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "deadline_exceeded");
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_EQ(
      server.ask(post("/v1/completions", completion(5), "X-Request-Timeout-Ms: 0\r\n")).status,
      400);
}

TEST(Service, EndsStreamsWithAnErrorWhenTheEngineFails) {
  RecordedServer server;
  server.gate.hold_after(5);
  RawClient streaming(server.port());
  streaming.send(post("/v1/completions", completion(400, R"(,"stream":true)")));
  ASSERT_TRUE(streaming.receive_until("data: "));
  RawClient waiting(server.port());
  waiting.send(post("/v1/completions", completion(5)));
  ASSERT_TRUE(eventually([&] { return server.sequences() == 2; }));
  server.gate.fail();
  const Response r = streaming.response();
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(streaming.is_closed());
  const std::vector<std::string> events = events_of(r.body);
  EXPECT_EQ(
      events.back(),
      R"({"error":{"message":"rank 3 lost","type":"server_error","param":null,"code":"engine_failure"}})");
  const Response whole = waiting.response();
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.headers.at("Retry-After"), "1");
  EXPECT_EQ(Json::parse(whole.body)["error"]["code"], "engine_failure");
  for (const char* path : {"/health", "/health/ready"})
    EXPECT_EQ(server.ask(get(path)).status, 503) << path;
  EXPECT_EQ(server.ask(get("/health/live")).status, 200);
  EXPECT_EQ(server.ask(post("/v1/completions", completion(5))).status, 503);
  EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
}

TEST(Service, DrainsWithTokensStillFlowing) {
  RecordedServer server;
  server.gate.hold();
  RawClient client(server.port());
  client.send(post("/v1/completions", completion(300, R"(,"stream":true)")));
  ASSERT_TRUE(eventually([&] { return server.sequences() == 1; }));
  server.service.admission().close("draining", "the server is draining");
  EXPECT_FALSE(server.server->drain(milliseconds(20)));
  const Response refused = server.ask(post("/v1/completions", completion(5)));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("Retry-After"), "1");
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "draining");
  EXPECT_EQ(server.ask(get("/health/ready")).status, 503);
  EXPECT_EQ(server.ask(get("/health/live")).status, 200);
  server.gate.release();
  const Response r = client.response();
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(events_of(r.body).back(), "[DONE]");
  EXPECT_TRUE(client.is_closed());
  EXPECT_TRUE(server.server->drain(milliseconds(kPatienceMs)));
}

TEST(Service, StopsInTheMiddleOfEverything) {
  RecordedServer server;
  server.gate.hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(
        post("/v1/completions", completion(300, i % 2 == 0 ? R"(,"stream":true)" : "")));
  }
  ASSERT_TRUE(eventually([&] { return server.sequences() == 20; }));
  server.server->stop();
  EXPECT_EQ(server.sequences(), 0);
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.engine.counts().used_blocks == 0; }));
}

// Counts that vLLM's own test of its metrics expects.
TEST(Service, CountsExactly) {
  RecordedServer server;
  constexpr int kRequests = 5, kPrompt = 7, kTokens = 11;
  for (int i = 0; i < kRequests; ++i)
    ASSERT_EQ(
        server
            .ask(post("/v1/completions", completion(kTokens, concat(R"(,"cache_salt":"s)", i, "\""),
                                                    std::string(kPrompt, 'p'))))
            .status,
        200);
  const std::string labels = R"({engine="0",model_name="m"})";
  const std::string responses =
      R"(http_requests_total{handler="/v1/completions",method="POST",model_name="m",status="2xx"})";
  // The last step and the last response are counted when they are complete, after the client has
  // received the response.
  std::string text;
  const auto has = [&](const std::string& name, int value) {
    return text.find(concat("\n", name, " ", value, "\n")) != std::string::npos;
  };
  ASSERT_TRUE(eventually([&] {
    text = server.ask(get("/metrics")).body;
    return has(responses, kRequests) &&
           has("vllm:iteration_tokens_total_count" + labels, kRequests * kTokens) &&
           has("vllm:kv_cache_usage_perc" + labels, 0);
  })) << text;
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_count" + labels), kRequests);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count" + labels), kRequests * (kTokens - 1));
  EXPECT_EQ(value("vllm:prompt_tokens_total" + labels), kRequests * kPrompt);
  EXPECT_EQ(value("vllm:generation_tokens_total" + labels), kRequests * kTokens);
  EXPECT_EQ(value("vllm:iteration_tokens_total_sum" + labels), kRequests * (kPrompt + kTokens));
  EXPECT_EQ(value("vllm:iteration_tokens_total_count" + labels), kRequests * kTokens);
  EXPECT_EQ(value("vllm:request_prompt_tokens_sum" + labels), kRequests * kPrompt);
  EXPECT_EQ(value("vllm:request_generation_tokens_sum" + labels), kRequests * kTokens);
  EXPECT_EQ(value("vllm:e2e_request_latency_seconds_count" + labels), kRequests);
  EXPECT_EQ(
      value(R"(vllm:request_success_total{engine="0",finished_reason="length",model_name="m"})"),
      kRequests);
  EXPECT_EQ(value("vllm:num_requests_running" + labels), 0);
  EXPECT_EQ(value("vllm:num_requests_waiting" + labels), 0);
  EXPECT_EQ(value("vllm:kv_cache_usage_perc" + labels), 0);
  // model_name is a label of every series.
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    if (line.empty() || line[0] == '#') continue;
    EXPECT_NE(line.find(R"(model_name="m")"), std::string::npos) << line;
  }
}

TEST(Service, MakesNoSeriesOfWhatClientsInvent) {
  RecordedServer server;
  for (int i = 0; i < 20; ++i)
    server.ask(concat("METHOD", std::string(static_cast<size_t>(i), 'X'), " /path", i,
                      " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const std::string text = server.ask(get("/metrics")).body;
  EXPECT_EQ(text.find("METHOD"), std::string::npos);
  EXPECT_EQ(text.find("/path"), std::string::npos);
  EXPECT_NE(text.find(R"(handler="none",method="other")"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_service
