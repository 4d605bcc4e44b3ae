// Constrained completions through HTTP: the executor samples among all allowed tokens.
#include <array>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_structured {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

std::string request(const std::string& more, const std::string& prompt = "hi") {
  return concat(R"({"model":"m","prompt":)", Json(prompt).dump(), R"(,"max_tokens":400,)", more,
                "}");
}

Json choices(RecordedServer& server, const std::string& body) {
  const Response r = server.ask(post("/v1/completions", body));
  EXPECT_EQ(r.status, 200) << r.body;
  return Json::parse(r.body)["choices"];
}

TEST(StructuredOutput, TextsAreWhatTheyMustBe) {
  RecordedServer server;
  const auto text = [&](const std::string& more) {
    const Json choice = choices(server, request(more))[0];
    EXPECT_EQ(choice["finish_reason"], "stop") << choice.dump();
    return choice["text"].get<std::string>();
  };
  EXPECT_TRUE(std::regex_match(text(R"("structured_outputs":{"regex":"[a-c]{3}-\\d{2}"})"),
                               std::regex("[a-c]{3}-\\d{2}")));
  const std::string yes = text(R"("structured_outputs":{"choice":["yes","no"]})");
  EXPECT_TRUE(yes == "yes" || yes == "no") << yes;
  EXPECT_TRUE(std::regex_match(
      text(R"_("structured_outputs":{"grammar":"root ::= \"(\" [a-z]{3} \")\""})_"),
      std::regex("\\([a-z]{3}\\)")));
  const Json value = Json::parse(text(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object",)"
      R"("properties":{"n":{"type":"integer","minimum":1,"maximum":12},"b":{"type":"boolean"}},)"
      R"("required":["n","b"],"additionalProperties":false}}})"));
  EXPECT_TRUE(value["b"].is_boolean());
  EXPECT_TRUE(value["n"].get<int>() >= 1 && value["n"].get<int>() <= 12);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(StructuredOutput, ChoicesHaveTextsOfTheirOwn) {
  RecordedServer server;
  const std::string body = request(R"("n":3,"structured_outputs":{"regex":"[a-z]{20}"})");
  const Json three = choices(server, body);
  ASSERT_EQ(three.size(), 3u);
  for (const Json& one : three) {
    EXPECT_TRUE(std::regex_match(one["text"].get<std::string>(), std::regex("[a-z]{20}")));
    EXPECT_EQ(one["finish_reason"], "stop");
  }
}

TEST(StructuredOutput, ATextThatIsCutOffSaysSo) {
  RecordedServer server;
  const Json one = choices(server, R"({"model":"m","prompt":"hi","max_tokens":5,)"
                                   R"("structured_outputs":{"regex":"[a-z]{20}"}})")[0];
  EXPECT_EQ(one["finish_reason"], "length");
  EXPECT_EQ(one["text"].get<std::string>().size(), 5u);
}

TEST(StructuredOutput, AStreamIsTheSameText) {
  RecordedServer server;
  const std::string fields = R"("structured_outputs":{"regex":"([a-f]+,){4}[a-f]"})";
  const std::string whole = choices(server, request(fields))[0]["text"];
  const Response r = server.ask(post("/v1/completions", request(fields + R"(,"stream":true)")));
  ASSERT_EQ(r.status, 200);
  std::string text;
  for (size_t at = 0; (at = r.body.find("data: {", at)) != std::string::npos; at += 6)
    text +=
        Json::parse(r.body.substr(at + 6, r.body.find("\n\n", at) - at - 6))["choices"][0]["text"]
            .get<std::string>();
  EXPECT_EQ(text, whole);
}

// A pool too small for all sequences: they are recomputed repeatedly and still satisfy their
// grammars.
TEST(StructuredOutput, PreemptedTextsGoOnWhereTheyWere) {
  RecordedServerOptions options;
  options.scheduler.max_model_len = 200;
  options.blocks = 40;
  RecordedServer server(options);
  const Json all = choices(server, R"({"model":"m","prompt":"hi","max_tokens":150,"n":6,)"
                                   R"("structured_outputs":{"regex":"([a-z]{4}-){20}[0-9]{9}"}})");
  EXPECT_GT(server.engine.counts().scheduler.preemptions, 0);
  for (const Json& one : all)
    EXPECT_TRUE(
        std::regex_match(one["text"].get<std::string>(), std::regex("([a-z]{4}-){20}[0-9]{9}")))
        << one.dump();
}

TEST(StructuredOutput, WhatCannotBeIsRefusedWithItsReason) {
  RecordedServer server;
  const auto why = [&](const std::string& more) {
    const Response r = server.ask(post("/v1/completions", request(more)));
    EXPECT_EQ(r.status, 400) << r.body;
    return Json::parse(r.body)["error"];
  };
  Json error = why(R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":)"
                   R"({"properties":{"a":{"not":{"type":"null"}}}}}})");
  EXPECT_EQ(error["param"], "response_format");
  EXPECT_EQ(error["message"], "response_format: schema #/properties/a: \"not\" is not supported");
  error = why(R"("stream":true,"structured_outputs":{"regex":"(?=a)b"})");
  EXPECT_EQ(error["param"], "structured_outputs");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(StructuredOutput, TheSchemaFalseHasNoText) {
  RecordedServer server;
  for (const char* field :
       {R"("structured_outputs":{"json":false})",
        R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":false}})"}) {
    const Response r = server.ask(post("/v1/completions", request(field)));
    EXPECT_EQ(r.status, 400) << field << r.body;
  }
  EXPECT_EQ(
      server.ask(post("/v1/completions", request(R"("structured_outputs":{"json_object":false})")))
          .status,
      200);
}

// A grammar that ends before min_tokens is reached allows no token: the request gets an error.
TEST(StructuredOutput, MinTokensBeyondTheLongestTextIsRefused) {
  RecordedServer server;
  const auto body = [](int tokens, const char* regex) {
    return request(
        concat(R"("min_tokens":)", tokens, R"(,"structured_outputs":{"regex":")", regex, R"("})"));
  };
  for (const char* regex : {"a", "a(bc)?"}) {
    const Response r = server.ask(post("/v1/completions", body(5, regex)));
    EXPECT_EQ(r.status, 400) << r.body;
    EXPECT_EQ(error_code_of(r), "no_token_allowed");
  }
  EXPECT_EQ(choices(server, body(3, "abc"))[0]["text"], "abc");
  EXPECT_EQ(choices(server, body(5, "abc.*"))[0]["text"].get<std::string>().substr(0, 3), "abc");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// This is not a server fault and does not affect other requests.
TEST(StructuredOutput, ForbiddingEveryTokenIsReported) {
  RecordedServer server;
  const auto body = [](const std::string& more) {
    return R"({"model":"m","prompt":[254],"max_tokens":5)" + more + "}";
  };
  RawClient other(server.port());
  other.send(post("/v1/completions", request(R"("temperature":0)")));
  const Response r = server.ask(post("/v1/completions", body("")));
  EXPECT_EQ(r.status, 400) << r.body;
  const Json error = Json::parse(r.body)["error"];
  EXPECT_EQ(error["code"], "no_token_allowed");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_NE(error["message"].get<std::string>().find("bad_words"), std::string::npos);
  RawClient stream(server.port());
  stream.send(post("/v1/completions", body(R"(,"stream":true)")));
  EXPECT_TRUE(stream.receive_until("no_token_allowed"));
  EXPECT_EQ(other.response().status, 200);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// The same calls with and without streaming; the first event of each call has its name.
TEST(StructuredOutput, ToolsThatMustBeCalledAre) {
  RecordedServerOptions options;
  options.tools = ToolFormat::kHermes;
  RecordedServer server(options);
  const auto body = [](const std::string& more) {
    return concat(
        R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":400,"tools":[)",
        R"({"type":"function","function":{"name":"f","parameters":{"type":"object","properties":)",
        R"({"a":{"type":"integer","maximum":99,"minimum":0},"b":{"type":"boolean"}},)",
        R"("required":["a","b"]}}},{"type":"function","function":{"name":"none"}}],)", more, "}");
  };
  for (const char* name : {"f", "none"}) {
    const std::string choice =
        concat(R"("tool_choice":{"type":"function","function":{"name":")", name, R"("}})");
    const Response whole = server.ask(post("/v1/chat/completions", body(choice)));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json one = Json::parse(whole.body)["choices"][0];
    EXPECT_EQ(one["finish_reason"], "tool_calls");
    EXPECT_TRUE(one["message"]["content"].is_null());
    ASSERT_EQ(one["message"]["tool_calls"].size(), 1u);
    const Json call = one["message"]["tool_calls"][0];
    EXPECT_EQ(call["function"]["name"], name);
    const Json arguments = Json::parse(call["function"]["arguments"].get<std::string>());
    EXPECT_EQ(arguments.size(), *name == 'f' ? 2u : 0u);
    const Response r = server.ask(post("/v1/chat/completions", body(choice + R"(,"stream":true)")));
    std::string streamed, finish;
    int begun = 0;
    for (size_t at = 0; (at = r.body.find("data: {", at)) != std::string::npos; at += 6) {
      const Json event = Json::parse(r.body.substr(at + 6, r.body.find("\n\n", at) - at - 6));
      const Json delta = event["choices"][0]["delta"];
      if (event["choices"][0]["finish_reason"].is_string())
        finish = event["choices"][0]["finish_reason"];
      if (!delta.contains("tool_calls")) {
        EXPECT_TRUE(!delta.contains("content") || delta["content"] == "") << event.dump();
        continue;
      }
      const Json part = delta["tool_calls"][0];
      EXPECT_EQ(part["index"], 0);
      if (part.contains("id")) {
        ++begun;
        EXPECT_EQ(part["type"], "function");
        EXPECT_EQ(part["function"]["name"], name);
        EXPECT_EQ(part["function"]["arguments"], "");
      }
      streamed += part["function"]["arguments"].get<std::string>();
    }
    EXPECT_EQ(begun, 1);
    EXPECT_EQ(finish, "tool_calls");
    EXPECT_EQ(Json::parse(streamed).size(), arguments.size());
    EXPECT_EQ(streamed == "{}", *name == 'n') << streamed;
  }
}

// With tool_choice auto, the output is either text or calls.
TEST(StructuredOutput, ToolsStandBesideAFormat) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral}) {
    RecordedServerOptions options;
    options.tools = format;
    RecordedServer server(options);
    int texts = 0, calls = 0;
    for (int i = 0; i < 100 && (texts == 0 || calls == 0); ++i) {
      const Response r =
          server.ask(post("/v1/chat/completions",
                          concat(R"({"model":"m","messages":[{"role":"user","content":"hi )", i,
                                 R"("}],"max_tokens":300,"parallel_tool_calls":false,)"
                                 R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                                 R"("structured_outputs":{"regex":"!(yes|no)( (yes|no)){3}"}})")));
      ASSERT_EQ(r.status, 200) << r.body;
      const Json one = Json::parse(r.body)["choices"][0];
      const bool called = one["message"].contains("tool_calls");
      (called ? calls : texts) += 1;
      EXPECT_EQ(one["finish_reason"], called ? "tool_calls" : "stop");
      if (called)
        EXPECT_EQ(one["message"]["tool_calls"][0]["function"]["arguments"], "{}");
      else
        EXPECT_TRUE(std::regex_match(one["message"]["content"].get<std::string>(),
                                     std::regex("!(yes|no)( (yes|no)){3}")))
            << one.dump();
    }
    EXPECT_GT(texts, 0);
    EXPECT_GT(calls, 0);
    // With a required call there is no text.
    const Response must = server.ask(
        post("/v1/chat/completions",
             R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tool_choice":"required",)"
             R"("parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"f"}}],)"
             R"("response_format":{"type":"json_object"},"max_tokens":300})"));
    EXPECT_EQ(Json::parse(must.body)["choices"][0]["finish_reason"], "tool_calls") << must.body;
  }
}

// Bytes, plus tool call markers and another marker as tokens without text.
class MarkTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kFirst = 257, kOther = 259;
  std::string name() const override { return "marks"; }
  int64_t vocab_size() const override { return kOther + 1; }
  int32_t bos_id() const override { return bytes_->bos_id(); }
  int32_t eod_id() const override { return bytes_->eod_id(); }
  bool is_control(int32_t id) const override { return id >= kFirst || bytes_->is_control(id); }
  void append_bytes(int32_t id, std::string& out) const override {
    if (id < kFirst) bytes_->append_bytes(id, out);
  }
  int32_t find(std::string_view token) const override {
    const auto at = std::ranges::find(kMarks, token);
    return at == kMarks.end() ? bytes_->find(token)
                              : kFirst + static_cast<int32_t>(at - kMarks.begin());
  }
  std::string token(int32_t id) const override {
    return id < kFirst ? bytes_->token(id)
                       : std::string(kMarks.at(static_cast<size_t>(id - kFirst)));
  }

 protected:
  std::vector<int32_t> encode_text(std::string_view text,
                                   const EncodeOptions& options) const override {
    return bytes_->encode(text, options);
  }

 private:
  static constexpr std::array<std::string_view, 3> kMarks = {"<tool_call>", "</tool_call>",
                                                             "<think>"};
  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
};

// Optional calls of the model are recognized, whether the markers are text or tokens without text;
// other tokens without text stay invisible.
TEST(StructuredOutput, CallsThatAreLeftToTheModelAreFound) {
  const std::string call = R"({"name": "f", "arguments": {"a": 1}})";
  const auto ids_of = [](const std::string& text) {
    return std::vector<int32_t>(text.begin(), text.end());
  };
  for (const bool tokens : {false, true}) {
    SCOPED_TRACE(tokens ? "tokens" : "text");
    RecordedServerOptions options;
    options.tools = ToolFormat::kHermes;
    if (tokens) {
      options.tokenizer = std::make_shared<MarkTokenizer>();
      options.script = ids_of(call);
      options.script.insert(options.script.begin(), {MarkTokenizer::kOther, MarkTokenizer::kFirst});
      options.script.push_back(MarkTokenizer::kFirst + 1);
    } else {
      options.script = ids_of("<tool_call>" + call + "</tool_call>");
    }
    options.script.push_back(256);
    RecordedServer server(options);
    const auto body = [](const char* more) {
      return concat(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":99,)",
                    R"("tools":[{"type":"function","function":{"name":"f"}}])", more, "}");
    };
    const Response r = server.ask(post("/v1/chat/completions", body(R"(,"tool_choice":"auto")")));
    ASSERT_EQ(r.status, 200) << r.body;
    const Json one = Json::parse(r.body)["choices"][0];
    EXPECT_EQ(one["finish_reason"], "tool_calls");
    EXPECT_TRUE(one["message"]["content"].is_null()) << r.body;
    ASSERT_EQ(one["message"]["tool_calls"].size(), 1u);
    EXPECT_EQ(one["message"]["tool_calls"][0]["function"].dump(),
              R"_({"name":"f","arguments":"{\"a\": 1}"})_");
    // With tool_choice none the text is returned unchanged, except for tokens without text.
    const Response text =
        server.ask(post("/v1/chat/completions", body(R"(,"tool_choice":"none")")));
    const Json said = Json::parse(text.body)["choices"][0];
    EXPECT_EQ(said["finish_reason"], "stop");
    EXPECT_EQ(said["message"]["content"],
              tokens ? call : concat("<tool_call>", call, "</tool_call>"));
    const Response streamed = server.ask(post("/v1/chat/completions", body(R"(,"stream":true)")));
    std::string arguments, content;
    for (size_t at = 0; (at = streamed.body.find("data: {", at)) != std::string::npos; at += 6) {
      const Json event =
          Json::parse(streamed.body.substr(at + 6, streamed.body.find("\n\n", at) - at - 6));
      const Json delta = event["choices"][0]["delta"];
      content += delta.value("content", "");
      if (delta.contains("tool_calls"))
        arguments += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
    }
    EXPECT_EQ(arguments, R"({"a": 1})");
    EXPECT_EQ(content, "");
  }
}

// The arguments of a strict tool satisfy its schema in optional calls too; a schema that cannot be
// enforced is refused.
TEST(StructuredOutput, StrictToolsAreHeldToTheirSchemas) {
  const auto body = [](bool strict, const char* schema) {
    return concat(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":200,)",
                  R"("tools":[{"type":"function","function":{"name":"f","strict":)", strict,
                  R"(,"parameters":{"type":"object","properties":{"a":)", schema,
                  R"(},"required":["a"]}}}]})");
  };
  RecordedServerOptions options;
  options.tools = ToolFormat::kHermes;
  const std::string said = R"(I look.<tool_call>
{"name": "f", "arguments": {"a": "three"}}
</tool_call>)";
  options.script = {said.begin(), said.end()};
  options.script.push_back(256);
  RecordedServer server(options);
  const auto call = [&](bool strict) {
    const Response r =
        server.ask(post("/v1/chat/completions", body(strict, R"({"type":"boolean"})")));
    EXPECT_EQ(r.status, 200) << r.body;
    const Json one = Json::parse(r.body)["choices"][0];
    EXPECT_EQ(one["message"]["content"], "I look.") << r.body;
    EXPECT_EQ(one["finish_reason"], "tool_calls");
    return Json::parse(one["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
  };
  EXPECT_EQ(call(false)["a"], "three");
  EXPECT_TRUE(call(true)["a"].is_boolean());
  const char* unsupported = R"({"type":"integer","not":{"const":3}})";
  EXPECT_EQ(server.ask(post("/v1/chat/completions", body(false, unsupported))).status, 200);
  const Response r = server.ask(post("/v1/chat/completions", body(true, unsupported)));
  EXPECT_EQ(r.status, 400) << r.body;
  const Json error = Json::parse(r.body)["error"];
  EXPECT_NE(error["message"].get<std::string>().find("\"not\" is not"), std::string::npos);
  EXPECT_EQ(error["param"], "tools");
}

// Other requests get responses while expensive grammars are compiled.
TEST(StructuredOutput, HardGrammarsHoldNobodyUp) {
  RecordedServer server;
  // A blocked request would take two seconds every time; a suspended machine does not.
  auto took = std::chrono::steady_clock::duration::max();
  for (int tries = 0; tries < 10 && took >= std::chrono::seconds(2); ++tries) {
    RawClient hard(server.port());
    hard.send(post(
        "/v1/completions",
        request(
            R"_("structured_outputs":{"regex":"(((((a{1000}){1000}){1000}){1000}){1000})"})_")));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(choices(server, request(R"("structured_outputs":{"choice":["a"]})"))[0]["text"],
                "a");
    took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(hard.response().status, 400);
  }
  EXPECT_LT(took, std::chrono::seconds(2));
}

}  // namespace
}  // namespace trireme::test_structured
