// Every limit on lists, objects and texts in requests: at the limit, and one beyond.
#include <gtest/gtest.h>

#include <functional>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/lora_adapters.h"
#include "serving/api/endpoints/tokenize.h"
#include "serving/api/endpoints/weights.h"

namespace trireme::test_limits {
namespace {

using Body = std::function<std::string(size_t)>;

struct Limit {
  size_t most;
  const char* param;  // named in the refusal
  Body body;          // body of a given size
  const char* code = "invalid_value";
};

// `count` copies, with their number instead of #.
std::string listed(size_t count, std::string_view one) {
  std::string list;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    for (const char c : one) c == '#' ? list += std::to_string(i) : list += c;
  }
  return list;
}
std::string filled(size_t bytes) { return std::string(bytes, 'x'); }

// Request with these fields and the required ones.
std::string completion(std::string_view fields) {
  return concat(R"({"model":"m","prompt":"hi",)", fields, "}");
}
std::string chat(std::string_view fields) {
  return concat(R"({"model":"m","messages":[{"role":"user","content":"hi"}],)", fields, "}");
}
// A field whose value is this many entries, or bytes, between `before` and `behind`.
Body of_entries(std::string before, const char* one, const char* behind) {
  return
      [=, before = std::move(before)](size_t n) { return concat(before, listed(n, one), behind); };
}
Body of_bytes(const char* before, const char* behind) {
  return [=](size_t n) { return concat(before, filled(n), behind); };
}
Body inside(std::string (*request)(std::string_view), const Body& fields) {
  return [=](size_t n) { return request(fields(n)); };
}
Body number(const char* field) {
  return [=](size_t n) { return concat("\"", field, "\":", n); };
}

void expect_bounds(const std::vector<Limit>& limits,
                   const std::function<void(const std::string&)>& parse) {
  for (const Limit& limit : limits) {
    SCOPED_TRACE(concat(limit.param, ", ", limit.most));
    EXPECT_NO_THROW(parse(limit.body(limit.most)));
    try {
      parse(limit.body(limit.most + 1));
      ADD_FAILURE() << "one more is accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_EQ(error.param(), limit.param) << error.what();
      EXPECT_EQ(error.error_code(), limit.code) << error.what();
    }
  }
}

constexpr size_t kSchemaBytes = 64 << 10, kListed = 1 << 20;

TEST(Limits, OfCompletions) {
  const auto c = [](const Body& fields) { return inside(completion, fields); };
  const std::string_view schema = R"({"description":""})";
  const auto described = [&](size_t bytes) {  // a schema of this many bytes
    return concat(R"({"description":")", filled(bytes - schema.size()), "\"}");
  };
  expect_bounds(
      {{kSchemaBytes, "structured_outputs.json",
        c([&](size_t n) { return concat(R"("structured_outputs":{"json":)", described(n), "}"); })},
       {kSchemaBytes, "structured_outputs.regex",
        c(of_bytes(R"("structured_outputs":{"regex":")", "\"}"))},
       {kSchemaBytes, "structured_outputs.grammar",
        c(of_bytes(R"("structured_outputs":{"grammar":")", "\"}"))},
       {1024, "structured_outputs.choice",
        c(of_entries(R"("structured_outputs":{"choice":[)", R"("c#")", "]}"))},
       {kSchemaBytes, "structured_outputs.choice",
        c(of_bytes(R"("structured_outputs":{"choice":[")", "\"]}"))},
       {kSchemaBytes, "response_format.json_schema.schema", c([&](size_t n) {
          return concat(R"("response_format":{"type":"json_schema","json_schema":{"name":"s",)",
                        R"("schema":)", described(n), "}}");
        })},
       {64, "response_format.json_schema.name",
        c(of_bytes(R"("response_format":{"type":"json_schema","json_schema":{"name":")",
                   R"(","schema":{}}})"))},
       {1024, "logit_bias", c(of_entries(R"("logit_bias":{)", R"("#":1)", "}"))},
       {1024, "bad_words", c(of_entries(R"("bad_words":[)", R"("w#")", "]"))},
       {256, "bad_words", c(of_bytes(R"("bad_words":[")", "\"]"))},
       {16, "stop", c(of_entries(R"("stop":[)", R"("s#")", "]"))},
       {256, "stop", c(of_bytes(R"("stop":[")", "\"]"))},
       {128, "stop_token_ids", c(of_entries(R"("stop_token_ids":[)", "#", "]"))},
       {1024, "cache_salt", c(of_bytes(R"("cache_salt":")", "\""))},
       {128, "best_of", c(number("best_of"))},
       {128, "n", c(number("n"))},
       {20, "logprobs", c(number("logprobs"))},
       {20, "prompt_logprobs", c(number("prompt_logprobs"))},
       {1'000'000'000, "max_tokens", c(number("max_tokens"))},
       {1'000'000'000, "top_k", c(number("top_k"))},
       {1'000'000, "priority", c(number("priority"))},
       {1'000'000, "priority", c(number("n\":1,\"priority"))},
       {64, "n", c(number("use_beam_search\":true,\"n"))},
       {64, "best_of", c(number("use_beam_search\":true,\"best_of"))},
       {128, "prompt", of_entries(R"({"model":"m","prompt":[)", R"("p")", "]}")},
       {kListed, "prompt", of_entries(R"({"model":"m","prompt":[)", "7", "]}")},
       {kListed, "prompt", of_entries(R"({"model":"m","prompt":[[)", "7", "]]}")},
       {512, "model", of_bytes(R"({"prompt":"p","model":")", "\"}")},
       {4096, "", c(of_entries(R"("other":{)", R"("#":1)", "}")), "invalid_json"},
       {4094, "", c(of_entries("", R"("f#":1)", "")), "invalid_json"}},  // with model and prompt
      [](const std::string& body) { parse_completion(body, {.has_priorities = true}); });
  // Lower bound of a value that may be negative.
  EXPECT_EQ(
      parse_completion(completion(R"("priority":-1000000)"), {.has_priorities = true}).priority,
      -1'000'000);
  EXPECT_THROW(parse_completion(completion(R"("priority":-1000001)"), {.has_priorities = true}),
               ApiError);
}

TEST(Limits, OfChats) {
  const auto c = [](const Body& fields) { return inside(chat, fields); };
  const auto call = [](std::string_view before, std::string_view behind) {
    return concat(R"({"model":"m","messages":[{"role":"assistant","tool_calls":[)", before, behind);
  };
  const std::string_view tool = R"({"name":"f","description":""})";
  expect_bounds(
      {{16384, "messages",
        of_entries(R"({"model":"m","messages":[)", R"({"role":"user","content":""})", "]}")},
       {128, "messages[0].tool_calls",
        [&](size_t n) {
          return call(listed(n, R"({"id":"c","function":{"name":"f","arguments":"{}"}})"), "]}]}");
        }},
       {128, "documents", c(of_entries(R"("documents":[)", R"({"text":"#"})", "]"))},
       {64 << 10, "documents[0]", c([&](size_t n) {
          return concat(R"("documents":[{"text":")", filled(n - sizeof(R"({"text":""})") + 1),
                        "\"}]");
        })},
       {16, "messages[0]",
        of_entries(R"({"model":"m","messages":[{"role":"user","content":"",)", R"("m#":"x")",
                   "}]}")},
       {128, "tools",
        c(of_entries(R"("tools":[)", R"({"type":"function","function":{"name":"f#"}})", "]"))},
       {64, "tools[0].function.name",
        c(of_bytes(R"("tools":[{"type":"function","function":{"name":")", "\"}}]"))},
       {64 << 10, "tools[0]", c([&](size_t n) {
          return concat(R"("tools":[{"type":"function","function":{"name":"f","description":")",
                        filled(n - tool.size()), "\"}}]");
        })},
       {32, "chat_template_kwargs", c(of_entries(R"("chat_template_kwargs":{)", R"("v#":1)", "}"))},
       {256, "chat_template_kwargs.v", c(of_bytes(R"("chat_template_kwargs":{"v":")", "\"}"))},
       {20, "top_logprobs", c(number("logprobs\":true,\"top_logprobs"))},
       {64, "n", c(number("use_beam_search\":true,\"n"))},
       {128, "n", c(number("n"))}},
      [](const std::string& body) { parse_chat(body); });
}

TEST(Limits, OfTheOtherEndpoints) {
  expect_bounds(
      {{2048, "input", of_entries(R"({"model":"m","input":[)", R"("t#")", "]}")},
       {kListed, "input", of_entries(R"({"model":"m","input":[)", "7", "]}")},
       {1'000'000, "dimensions",
        [](size_t n) { return concat(R"({"model":"m","input":"t","dimensions":)", n, "}"); }}},
      [](const std::string& body) { parse_embeddings(body); });
  expect_bounds({{kListed, "tokens", of_entries(R"({"tokens":[)", "7", "]}")}},
                [](const std::string& body) { parse_detokenize(body); });
  const std::string messages = R"({"messages":[{"role":"user","content":"hi"}],)";
  expect_bounds(
      {{16384, "messages", of_entries(R"({"messages":[)", R"({"role":"user","content":""})", "]}")},
       {128, "tools",
        of_entries(messages + "\"tools\":[", R"({"type":"function","function":{"name":"f#"}})",
                   "]}")},
       {32, "chat_template_kwargs",
        of_entries(messages + "\"chat_template_kwargs\":{", R"("v#":1)", "}}")}},
      [](const std::string& body) { parse_tokenize(body); });
  expect_bounds({{4096, "model", of_bytes(R"({"model":")", "\"}")}},
                [](const std::string& body) { parse_weights(body); });
  expect_bounds({{512, "lora_name", of_bytes(R"({"lora_path":"p","lora_name":")", "\"}")},
                 {4096, "lora_path", of_bytes(R"({"lora_name":"n","lora_path":")", "\"}")}},
                [](const std::string& body) { parse_load_adapter(body); });
}

}  // namespace
}  // namespace trireme::test_limits
