#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/lora_adapters.h"
#include "serving/api/endpoints/tokenize.h"
#include "serving/api/endpoints/weights.h"
#include "serving/api/field_table.h"

namespace trireme::test_requests {
namespace {

using Json = nlohmann::ordered_json;

// A body with the required fields, and these.
std::string completion(const std::string& more = "") {
  return R"({"model":"m","prompt":"hi")" + (more.empty() ? "" : "," + more) + "}";
}
std::string chat(const std::string& more = "") {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}

struct Refusal {
  int status = 0;
  std::string param, code, message;
};
Refusal refusal_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    return {error.status(), error.param(), error.error_code(), error.what()};
  }
  return {};
}
Refusal refuse_completion(const std::string& body) {
  return refusal_of([&] { parse_completion(body); });
}
Refusal refuse_chat(const std::string& body) {
  return refusal_of([&] { parse_chat(body); });
}

TEST(Requests, HaveTheDefaultsOfOpenAi) {
  const CompletionRequest c = parse_completion(completion());
  EXPECT_EQ(c.max_tokens, 16);
  EXPECT_EQ(c.n, 1);
  EXPECT_EQ(c.temperature, 1);
  EXPECT_EQ(c.top_p, 1);
  EXPECT_EQ(c.top_logprobs, -1);
  EXPECT_FALSE(c.stream);
  EXPECT_FALSE(c.seed.has_value());
  EXPECT_TRUE(c.add_special);
  ASSERT_EQ(c.prompts.size(), 1u);
  EXPECT_EQ(c.prompts[0].text, "hi");
  const ChatRequest r = parse_chat(chat());
  EXPECT_FALSE(r.max_tokens.has_value());
  EXPECT_FALSE(r.add_special);
  EXPECT_EQ(r.variables->dump(),
            R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true})");
}

TEST(Requests, ReadEveryField) {
  const CompletionRequest c = parse_completion(
      completion(
          R"("max_tokens":7,"min_tokens":3,"n":2,"temperature":0.5,"top_p":0.25,"min_p":0.125,"top_k":9,"typical_p":0.5,)"
          R"("repetition_penalty":1.5,"frequency_penalty":-2,"presence_penalty":2,"seed":-5,)"
          R"("stop":["a","b"],"stop_token_ids":[1,2],"include_stop_str_in_output":true,"ignore_eos":true,)"
          R"("skip_special_tokens":false,"logit_bias":{"5":-100},"bad_words":["x"],"logprobs":5,)"
          R"("return_tokens_as_token_ids":true,"stream":true,"stream_options":{"include_usage":true,)"
          R"("continuous_usage_stats":true},"priority":-4,"cache_salt":"s","echo":true,"best_of":2,)"
          R"("add_special_tokens":false,"structured_outputs":{"regex":"a+"})"),
      {.has_priorities = true});
  EXPECT_EQ(c.max_tokens, 7);
  EXPECT_EQ(c.min_tokens, 3);
  EXPECT_EQ(c.n, 2);
  EXPECT_EQ(c.temperature, 0.5);
  EXPECT_EQ(c.top_p, 0.25);
  EXPECT_EQ(c.min_p, 0.125);
  EXPECT_EQ(c.typical_p, 0.5);
  EXPECT_EQ(c.top_k, 9);
  EXPECT_EQ(c.repetition_penalty, 1.5);
  EXPECT_EQ(c.frequency_penalty, -2);
  EXPECT_EQ(c.presence_penalty, 2);
  EXPECT_EQ(c.seed, -5);
  EXPECT_EQ(c.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(c.include_stop && c.ignore_eos && !c.skip_special);
  EXPECT_EQ(c.logit_bias, (std::vector<std::pair<int32_t, double>>{{5, -100.0}}));
  EXPECT_EQ(c.bad_words, (std::vector<std::string>{"x"}));
  EXPECT_EQ(c.top_logprobs, 5);
  EXPECT_TRUE(c.tokens_as_ids && c.stream && c.include_usage && c.usage_in_each && c.echo);
  EXPECT_EQ(c.priority, -4);
  EXPECT_EQ(c.cache_salt, "s");
  EXPECT_FALSE(c.add_special);
  EXPECT_EQ(c.constraint.kind, Constraint::Kind::kRegex);
  EXPECT_EQ(c.constraint.text, "a+");
  EXPECT_TRUE(c.unknown.empty());
}

TEST(Requests, AcceptAllFormsOfPrompts) {
  const auto prompts = [](const std::string& json) {
    return parse_completion(R"({"model":"m","prompt":)" + json + "}").prompts;
  };
  EXPECT_EQ(prompts(R"("")").size(), 1u);
  EXPECT_EQ(prompts(R"(["a","b"])").size(), 2u);
  EXPECT_EQ(prompts("[1,2]")[0].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts("[[1],[2,3]]")[1].tokens, (std::vector<int32_t>{2, 3}));
  for (const char* bad : {"[]", "[[]]", "[[1],[]]", "[\"a\",1]", "[1,\"a\"]", "7", "{}", "true",
                          "[-1]", "[2147483648]", "[1.5]", "[[[1]]]", "[null]"})
    EXPECT_EQ(refuse_completion(std::string(R"({"model":"m","prompt":)") + bad + "}").param,
              "prompt")
        << bad;
}

struct Bound {
  const char* field;
  const char *good, *bad;
};

TEST(Requests, NameTheFieldThatIsOutOfRange) {
  for (const Bound& b : std::initializer_list<Bound>{
           {"n", "128", "129"},
           {"n", "1", "0"},
           {"n", "2.0", "1.5"},
           {"n", "1", "1000000000"},
           {"n", "1", "\"2\""},
           {"n", "1", "true"},
           {"n", "1", "[]"},
           {"max_tokens", "1", "-1"},
           {"max_tokens", "1", "0"},
           {"max_tokens", "1000000000", "2147483648"},
           {"best_of", "1", "1000000000"},
           {"typical_p", "1", "1.01"},
           {"typical_p", "0", "-0.1"},
           {"temperature", "0", "-0.001"},
           {"temperature", "2", "2.001"},
           {"temperature", "-0", "1e300"},
           {"top_p", "1", "1.1"},
           {"min_p", "0", "-0.1"},
           {"top_k", "-1", "-2"},
           {"frequency_penalty", "-2", "-2.5"},
           {"presence_penalty", "2", "3"},
           {"repetition_penalty", "0.01", "0"},
           {"logprobs", "20", "21"},
           {"logprobs", "0", "true"},
           {"seed", "9223372036854775807", "9223372036854775808"},
           {"seed", "-9223372036854775808", "1e30"},
           {"stop", R"("x")", R"("")"},
           {"stop", "[]", "[1]"},
           {"stop", R"(["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6"])",
            R"(["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])"},
           {"logit_bias", R"({"1":100})", R"({"1":100.5})"},
           {"logit_bias", R"({"0":-100})", R"({"-1":1})"},
           {"logit_bias", "{}", R"({"1x":1})"},
           {"logit_bias", "{}", R"({"99999999999":1})"},
           {"stop_token_ids", "[0]", "[-1]"},
           {"stream", "false", "1"},
           {"echo", "true", "\"true\""},
           {"cache_salt", "\"s\"", "\"\""},
           {"min_tokens", "16", "17"},
           {"response_format", R"({"type":"text"})", R"({"type":7})"}}) {
    const std::string name = b.field;
    EXPECT_NO_THROW(parse_completion(completion("\"" + name + "\":" + b.good))) << name << b.good;
    const Refusal r = refuse_completion(completion("\"" + name + "\":" + b.bad));
    EXPECT_EQ(r.status, 400) << name << b.bad;
    EXPECT_EQ(r.param.substr(0, name.size()), name) << b.bad << r.message;
  }
  EXPECT_EQ(refuse_completion(completion("\"n\":129")).message, "n must be <= 128");
  EXPECT_EQ(refuse_completion(completion("\"n\":129")).code, "invalid_value");
}

TEST(Requests, BoundStringsAtTheirBytes) {
  const auto stop = [](size_t bytes) {
    return completion("\"stop\":\"" + std::string(bytes, 'x') + "\"");
  };
  EXPECT_NO_THROW(parse_completion(stop(256)));
  EXPECT_EQ(refuse_completion(stop(257)).param, "stop");
  const auto salt = [](size_t bytes) {
    return completion("\"cache_salt\":\"" + std::string(bytes, 'x') + "\"");
  };
  EXPECT_NO_THROW(parse_completion(salt(1024)));
  EXPECT_EQ(refuse_completion(salt(1025)).param, "cache_salt");
}

TEST(Requests, BoundTheNumberOfSequences) {
  const auto body = [](int prompts, int n) {
    std::string list;
    for (int i = 0; i < prompts; ++i) list += std::string(i == 0 ? "" : ",") + "\"p\"";
    return R"({"model":"m","n":)" + std::to_string(n) + R"(,"prompt":[)" + list + "]}";
  };
  EXPECT_NO_THROW(parse_completion(body(64, 2)));
  EXPECT_EQ(refuse_completion(body(65, 2)).param, "n");
  EXPECT_NO_THROW(parse_completion(body(128, 1)));
  EXPECT_EQ(refuse_completion(body(129, 1)).param, "prompt");
}

TEST(Requests, BoundIdsByTheVocabulary) {
  RequestLimits limits;
  limits.vocab_size = 100;
  for (const char* field : {"\"stop_token_ids\":[ID]", "\"logit_bias\":{\"ID\":1}"})
    for (const int id : {99, 100}) {
      std::string text = field;
      text.replace(text.find("ID"), 2, std::to_string(id));
      const Refusal r = refusal_of([&] { parse_completion(completion(text), limits); });
      EXPECT_EQ(r.status, id < 100 ? 0 : 400) << text;
    }
  EXPECT_EQ(refusal_of([&] { parse_detokenize(R"({"tokens":[100]})", limits); }).param, "tokens");
  EXPECT_NO_THROW(parse_detokenize(R"({"tokens":[99]})", limits));
}

TEST(Requests, ListUnknownFieldsAndGoOn) {
  const CompletionRequest c =
      parse_completion(completion(R"("what":{"a":[1]},"user":"u","ever":null)"));
  EXPECT_EQ(c.unknown, (std::vector<std::string>{"what", "ever"}));
}

TEST(Requests, NeedTheirFields) {
  EXPECT_EQ(refuse_completion(R"({"model":"m"})").param, "prompt");
  EXPECT_EQ(refuse_completion(R"({"model":"m","prompt":null})").param, "prompt");
  EXPECT_EQ(refuse_completion(R"({"prompt":"p"})").param, "model");
  EXPECT_EQ(refuse_chat(R"({"model":"m"})").param, "messages");
  EXPECT_EQ(refuse_chat(R"({"model":"m","messages":[]})").param, "messages");
}

// --- hostile JSON ---

TEST(Requests, RefuseWhatIsNoJson) {
  for (const char* body : {"", " ", "{", "[]", "7", "null", "\"x\"", "{}x", "{\"model\":}", "\xFF",
                           R"({"model":"m","prompt":"a)", "{'model':'m'}"})
    EXPECT_EQ(refuse_completion(body).status, 400) << body;
}

TEST(Requests, RefuseStringsThatAreNoUnicode) {
  for (const char* text :
       {"\"\\ud800\"", "\"\\udc00\\ud800\"", "\"\\ud800x\"", "\"\xC3(\"", "\"\xED\xA0\x80\"",
        "\"\xC0\x80\"", "\"\xF5\x80\x80\x80\"", "\"\x01\""}) {
    EXPECT_EQ(refuse_completion(std::string(R"({"model":"m","prompt":)") + text + "}").code,
              "invalid_json")
        << text;
    EXPECT_EQ(refuse_chat(std::string(R"({"model":"m","messages":[{"role":"user","content":)") +
                          text + "}]}")
                  .code,
              "invalid_json");
    EXPECT_EQ(refuse_completion(completion(std::string(text) + ":1")).code, "invalid_json");
  }
  std::string body = completion();
  body.insert(body.find("hi"), 1, '\0');
  EXPECT_EQ(refuse_completion(body).code, "invalid_json");
  // An escaped NUL is an ordinary character.
  EXPECT_EQ(parse_completion(R"({"model":"m","prompt":"a\u0000b"})").prompts[0].text,
            std::string("a\0b", 3));
  EXPECT_EQ(parse_completion(R"({"model":"m","prompt":"\ud83d\ude00"})").prompts[0].text,
            "\xF0\x9F\x98\x80");
}

TEST(Requests, BoundTheDepth) {
  const auto nested = [](size_t depth) {
    return completion("\"x\":" + std::string(depth, '[') + std::string(depth, ']'));
  };
  EXPECT_NO_THROW(parse_completion(nested(63)));
  EXPECT_EQ(refuse_completion(nested(64)).code, "invalid_json");
  EXPECT_EQ(refuse_completion(nested(1000000)).code, "invalid_json");
  EXPECT_EQ(refuse_completion(completion("\"x\":" + std::string(1000000, '['))).code,
            "invalid_json");
}

TEST(Requests, RefuseDuplicateKeys) {
  EXPECT_EQ(refuse_completion(completion("\"n\":1,\"n\":2")).code, "invalid_json");
  EXPECT_EQ(refuse_chat(chat(R"("stream_options":{"a":1,"a":2})")).code, "invalid_json");
}

TEST(Requests, RefuseNumbersThatAreNone) {
  for (const char* number :
       {"1e400", "-1e400", "NaN", "Infinity", "-Infinity", "0x10", "01", "1.", ".5", "+1"})
    EXPECT_EQ(refuse_completion(completion(std::string("\"temperature\":") + number)).code,
              "invalid_json")
        << number;
  EXPECT_EQ(parse_completion(completion("\"n\":1.0")).n, 1);
  EXPECT_EQ(parse_completion(completion("\"min_tokens\":-0")).min_tokens, 0);
  EXPECT_EQ(refuse_completion(completion("\"n\":9223372036854775808")).param, "n");
  EXPECT_EQ(refuse_completion(completion("\"n\":18446744073709551616")).param, "n");
}

// --- chats ---

TEST(Requests, KeepOfMessagesWhatTemplatesKnow) {
  const ChatRequest r = parse_chat(
      R"({"model":"m","messages":[{"role":"developer","content":"d","weird":1,"none":null,"no":[]},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"x\":1}"}}],"reasoning":"r","weird":{"a":1}},)"
      R"({"role":"tool","tool_call_id":"c","content":"t","tone":"dry"},)"
      R"({"role":"user","content":"u","tool_calls":"x"}]})");
  EXPECT_EQ((*r.variables)["messages"].dump(),
            R"([{"role":"system","content":"d"},{"role":"user","content":"a\nb","name":"n"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
            R"("function":{"name":"f","arguments":{"x":1}}}],"reasoning":"r"},)"
            R"({"role":"tool","content":"t","tool_call_id":"c","tone":"dry"},)"
            R"({"role":"user","content":"u"}])");
  // A member with content that no template can receive is named once.
  EXPECT_EQ(r.unknown, (std::vector<std::string>{"messages[].weird", "messages[].tool_calls"}));
  EXPECT_EQ(refuse_chat(R"({"model":"m","messages":[{"role":"assistant","content":"a",)"
                        R"("reasoning_content":7}]})")
                .param,
            "messages[0].reasoning_content");
}

// A model's own call that is not JSON is returned in the conversation as plain text.
TEST(Requests, KeepArgumentsAsTheModelWroteThem) {
  const auto arguments = [](const std::string& text) {
    const ChatRequest r = parse_chat(
        R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","function":)"
        R"({"name":"f","arguments":)" +
        nlohmann::json(text).dump() + "}}]}]}");
    return (*r.variables)["messages"][0]["tool_calls"][0]["function"]["arguments"].dump();
  };
  EXPECT_EQ(arguments(R"({"a": [1, {"b": 2}]})"), R"({"a":[1,{"b":2}]})");
  EXPECT_EQ(arguments(""), "{}");
  EXPECT_EQ(arguments(" \n"), "{}");
  const std::string deep(40, '[');
  for (const std::string text : {"{\"c\": \"echo ", "{\"c\": 'x'}", "[1]", "null", "3", "plain",
                                 "{\"a\": 1, \"a\": 2}", "{} {}"})
    EXPECT_EQ(arguments(text), nlohmann::json(text).dump());
  EXPECT_EQ(arguments("{\"a\":" + deep), nlohmann::json("{\"a\":" + deep).dump());
}

TEST(Requests, EndAPromptInOneOfTwoWays) {
  const auto ending = [](const char* fields) {
    const auto variables = parse_chat(chat(fields)).variables;
    return std::pair((*variables)["add_generation_prompt"] == true,
                     variables->contains("continue_final_message"));
  };
  EXPECT_EQ(ending(R"("n":1)"), std::pair(true, false));
  EXPECT_EQ(ending(R"("add_generation_prompt":false)"), std::pair(false, false));
  EXPECT_EQ(ending(R"("continue_final_message":true)"), std::pair(false, true));
  EXPECT_EQ(ending(R"("continue_final_message":true,"add_generation_prompt":false)"),
            std::pair(false, true));
  EXPECT_EQ(ending(R"("continue_final_message":false,"add_generation_prompt":true)"),
            std::pair(true, false));
  EXPECT_EQ(
      refuse_chat(chat(R"("continue_final_message":true,"add_generation_prompt":true)")).param,
      "continue_final_message");
}

TEST(Requests, NameTheMessageAtFault) {
  const auto refuse = [](const std::string& messages) {
    return refuse_chat(R"({"model":"m","messages":[{"role":"user","content":"x"},)" + messages +
                       "]}");
  };
  EXPECT_EQ(refuse("7").param, "messages[1]");
  EXPECT_EQ(refuse("{}").param, "messages[1].role");
  EXPECT_EQ(refuse(R"({"role":"god","content":"x"})").param, "messages[1].role");
  EXPECT_EQ(refuse(R"({"role":"user"})").param, "messages[1].content");
  EXPECT_EQ(refuse(R"({"role":"user","content":7})").param, "messages[1].content");
  EXPECT_EQ(refuse(R"({"role":"assistant","content":null})").param, "messages[1].content");
  EXPECT_EQ(refuse(R"({"role":"tool","content":"x"})").param, "messages[1].tool_call_id");
  EXPECT_EQ(
      refuse(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]})").status,
      501);
  const std::string call = R"({"role":"assistant","tool_calls":[{"id":"c","function":)";
  EXPECT_EQ(refuse(call + R"({"name":"f","arguments":{}}}]})").param,
            "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(refuse(call + "7}]}").param, "messages[1].tool_calls[0].function");
}

std::string tool(const std::string& name) {
  return R"("tools":[{"type":"function","function":{"name":")" + name +
         R"(","parameters":{"type":"object"}}}])";
}

TEST(Requests, CheckToolsAndTheirChoice) {
  EXPECT_EQ(parse_chat(chat(tool("f"))).tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(parse_chat(chat(tool("f"))).variables->contains("tools"));
  const ChatRequest none = parse_chat(chat(tool("f") + R"(,"tool_choice":"none")"));
  EXPECT_EQ(none.tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(none.variables->contains("tools"));
  EXPECT_EQ(parse_chat(chat(tool("f") + R"(,"tool_choice":"required")")).tool_choice,
            ToolChoice::kRequired);
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"f"}})";
  EXPECT_EQ(parse_chat(chat(tool("f") + named)).tool_name, "f");
  EXPECT_EQ(refuse_chat(chat(tool("g") + named)).param, "tool_choice");
  EXPECT_EQ(refuse_chat(chat(R"("tool_choice":"auto")")).param, "tool_choice");
  EXPECT_EQ(refuse_chat(chat(tool("f") + R"(,"tool_choice":"maybe")")).param, "tool_choice");
  EXPECT_EQ(refuse_chat(chat(R"("tools":[])")).param, "tools");
  EXPECT_NO_THROW(parse_chat(chat(tool(std::string(64, 'a')))));
  EXPECT_EQ(refuse_chat(chat(tool(std::string(65, 'a')))).param, "tools[0].function.name");
  EXPECT_EQ(refuse_chat(chat(tool("a b"))).param, "tools[0].function.name");
  EXPECT_EQ(refuse_chat(chat(R"("tools":[{"type":"function"}])")).param, "tools[0].function");
  const std::string twice = R"("tools":[{"type":"function","function":{"name":"f"}},)"
                            R"({"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(refuse_chat(chat(twice)).param, "tools[1].function.name");
  const auto with = [](const char* more) {
    return concat(R"("tools":[{"type":"function","function":{"name":"f",)", more, "}}]");
  };
  EXPECT_EQ(refuse_chat(chat(with(R"("parameters":{"type":"array"})"))).param,
            "tools[0].function.parameters");
  EXPECT_EQ(refuse_chat(chat(with(R"("strict":1)"))).param, "tools[0].function.strict");
  for (const char* fine : {R"("parameters":{"type":["object","null"]})", R"("parameters":{})",
                           R"("strict":null)", R"("strict":false)"})
    EXPECT_TRUE(parse_chat(chat(with(fine))).strict_tools.empty()) << fine;
  const ChatRequest strict = parse_chat(chat(with(R"("strict":true)")));
  EXPECT_TRUE(strict.strict_tools.contains("f"));
  EXPECT_FALSE(strict.variables->at("tools")[0]["function"].contains("strict"));
}

// Integers of more than 64 bits used to become the nearest double.
TEST(Requests, KeepLongIntegersAsTheyAreWritten) {
  const std::string number = "123456789012345678901234567890";
  const std::string parameters =
      R"({"type":"object","properties":{"id":{"enum":[)" + number + ",-" + number + "]}}}";
  const ChatRequest request =
      parse_chat(chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":)" +
                      parameters + R"(}}],"chat_template_kwargs":{"seed_id":)" + number + "}"));
  EXPECT_EQ(json_text((*request.variables)["tools"][0]["function"]["parameters"]), parameters);
  const ChatTemplate chat_template(
      "{{ seed_id }} {{ tools[0].function.parameters.properties.id.enum[1] }}");
  EXPECT_EQ(chat_template.render(*request.variables).text, number + " -" + number);
  const ChatRequest schema = parse_chat(
      chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
           parameters + "}}"));
  EXPECT_EQ(schema.constraint.text, parameters);
  // Numeric fields are still bounded.
  EXPECT_EQ(refuse_chat(chat(R"("temperature":)" + number)).param, "temperature");
  EXPECT_EQ(refuse_chat(chat(R"("max_tokens":)" + number)).param, "max_tokens");
  EXPECT_EQ(refuse_chat(chat(R"("logit_bias":{"1":)" + number + "}")).param, "logit_bias");
  EXPECT_EQ(refuse_completion(R"({"model":"m","prompt":[)" + number + "]}").param, "prompt");
  EXPECT_EQ(
      refuse_chat(chat(R"("chat_template_kwargs":{"x":)" + std::string(300, '1') + "}")).param,
      "chat_template_kwargs.x");
}

TEST(Requests, CheckWhatBelongsTogether) {
  EXPECT_EQ(refuse_chat(chat(R"("stream_options":{"include_usage":true})")).param,
            "stream_options");
  EXPECT_EQ(refuse_chat(chat(R"("top_logprobs":2)")).param, "top_logprobs");
  EXPECT_EQ(parse_chat(chat(R"("logprobs":true,"top_logprobs":2)")).top_logprobs, 2);
  EXPECT_EQ(parse_chat(chat(R"("logprobs":true)")).top_logprobs, 0);
  EXPECT_EQ(parse_chat(chat()).top_logprobs, -1);
  EXPECT_EQ(refuse_chat(chat(R"("response_format":{"type":"json_schema"})")).param,
            "response_format.json_schema");
  EXPECT_EQ(
      refuse_chat(chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"))
          .param,
      "response_format.json_schema.schema");
  EXPECT_EQ(
      refuse_chat(
          chat(R"("response_format":{"type":"json_object"},"structured_outputs":{"regex":"a"})"))
          .param,
      "structured_outputs");
  EXPECT_EQ(
      parse_chat(chat(R"("structured_outputs":{"choice":["a","b"]})")).constraint.choices.size(),
      2u);
  EXPECT_EQ(parse_chat(chat(R"("max_tokens":5,"max_completion_tokens":3)")).max_tokens, 3);
}

TEST(Requests, NameATemplateAndItsVariables) {
  EXPECT_EQ(
      (*parse_chat(chat(R"("chat_template":"rag","documents":[{"text":"t"}])")).variables).dump(),
      R"({"messages":[{"role":"user","content":"hi"}],"chat_template":"rag",)"
      R"("documents":[{"text":"t"}],"add_generation_prompt":true})");
  EXPECT_EQ(refuse_chat(chat(R"("documents":["t"])")).param, "documents[0]");
  EXPECT_EQ(refuse_chat(chat(R"("chat_template_kwargs":{"continue_final_message":true})")).param,
            "chat_template_kwargs.continue_final_message");
  EXPECT_EQ(refuse_chat(chat(R"("chat_template_kwargs":{"tokenize":true})")).param,
            "chat_template_kwargs.tokenize");
  EXPECT_EQ(refuse_chat(chat(R"("chat_template_kwargs":{"messages":"x"})")).param,
            "chat_template_kwargs.messages");
  EXPECT_EQ(refuse_chat(chat(R"("chat_template_kwargs":{"x":[1]})")).param,
            "chat_template_kwargs.x");
  EXPECT_EQ((*parse_chat(chat(R"("chat_template_kwargs":{"enable_thinking":false})"))
                  .variables)["enable_thinking"],
            false);
}

TEST(Requests, ReadHowManyChoicesAreComputed) {
  EXPECT_EQ(parse_completion(completion(R"("best_of":5,"n":2)")).best_of, 5);
  EXPECT_EQ(parse_completion(completion(R"("best_of":0,"n":2)")).best_of, 0);
  const RequestLimits limits{.sequences = 8};
  EXPECT_NO_THROW(parse_completion(completion(R"("best_of":8)"), limits));
  const auto refused = [&](const std::string& fields) {
    return refusal_of([&] { parse_completion(completion(fields), limits); });
  };
  for (const char* fields :
       {R"("best_of":1,"n":2)", R"("best_of":2,"stream":true)", R"("best_of":9)"}) {
    EXPECT_EQ(refused(fields).status, 400) << fields;
    EXPECT_EQ(refused(fields).param, "best_of") << fields;
  }
  EXPECT_EQ(refused(R"("n":9)").param, "n");
}

TEST(Requests, ReadWhatIsReportedOfThePrompt) {
  EXPECT_EQ(parse_completion(completion(R"("prompt_logprobs":0)")).prompt_logprobs, 0);
  EXPECT_EQ(parse_chat(chat(R"("prompt_logprobs":20)")).prompt_logprobs, 20);
  EXPECT_EQ(parse_chat(chat("")).prompt_logprobs, -1);
  EXPECT_EQ(refuse_chat(chat(R"("prompt_logprobs":21)")).param, "prompt_logprobs");
  EXPECT_EQ(refuse_chat(chat(R"("prompt_logprobs":1,"stream":true)")).param, "prompt_logprobs");
}

TEST(Requests, ReadBeamSearches) {
  const CompletionRequest r = parse_completion(completion(
      R"("use_beam_search":true,"n":2,"best_of":64,"length_penalty":0.6,"temperature":0.7,"seed":1)"));
  EXPECT_TRUE(r.beam_search);
  EXPECT_EQ(r.length_penalty, 0.6);
  EXPECT_FALSE(parse_chat(chat(R"("use_beam_search":false,"length_penalty":1)")).beam_search);
  EXPECT_EQ(refuse_completion(completion(R"("length_penalty":2)")).param, "length_penalty");
  EXPECT_EQ(refuse_completion(completion(R"("use_beam_search":true,"n":65)")).param, "n");
  const std::pair<const char*, const char*> others[] = {
      {"stream", "true"},
      {"top_p", "0.9"},
      {"top_k", "5"},
      {"min_p", "0.1"},
      {"typical_p", "0.9"},
      {"repetition_penalty", "1.1"},
      {"frequency_penalty", "0.5"},
      {"presence_penalty", "0.5"},
      {"logit_bias", R"({"7":1})"},
      {"bad_words", R"(["x"])"},
      {"stop", R"("x")"},
      {"response_format", R"({"type":"json_object"})"}};
  for (const auto& [name, value] : others) {
    const std::string fields = concat("\"use_beam_search\":true,\"", name, "\":", value);
    EXPECT_EQ(refuse_completion(completion(fields.c_str())).param, name) << fields;
    EXPECT_EQ(refuse_chat(chat(fields.c_str())).param, name) << fields;
  }
  const char* tools =
      R"("use_beam_search":true,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_NO_THROW(parse_chat(chat(tools)));
  EXPECT_EQ(refuse_chat(chat(concat(tools, R"(,"tool_choice":"required")").c_str())).param,
            "tool_choice");
}

TEST(Requests, SayWhatIsNotDoneHere) {
  EXPECT_EQ(refuse_completion(completion(R"("suffix":"x")")).status, 501);
  EXPECT_NO_THROW(parse_completion(completion(R"("suffix":"")")));
  EXPECT_EQ(refuse_completion(completion(R"("prompt_embeds":"AAAA")")).status, 501);
}

TEST(Requests, ReadTheOtherEndpoints) {
  const auto embeddings = [](const std::string& fields) {
    return parse_embeddings(concat(R"({"model":"m","input":"x",)", fields, "}"));
  };
  EXPECT_TRUE(embeddings(R"("encoding_format":"base64")").format.base64);
  EXPECT_EQ(embeddings(R"("encoding_format":"base64","embed_dtype":"bfloat16")").format.dtype,
            DType::kBF16);
  EXPECT_FALSE(embeddings(R"("endianness":"native","embed_dtype":"float32")").format.big_endian);
  for (const auto& [fields, param] : std::vector<std::pair<std::string, std::string>>{
           {R"("embed_dtype":"float16")", "embed_dtype"},
           {R"("encoding_format":"base64","embed_dtype":"fp8_e4m3")", "embed_dtype"},
           {R"("endianness":"big")", "endianness"},
           {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
           {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens"},
           {R"("truncation_side":"middle")", "truncation_side"}})
    EXPECT_EQ(refusal_of([&, &f = fields] { embeddings(f); }).param, param) << fields;
  EXPECT_EQ(refusal_of([] {
              parse_embeddings(R"({"model":"m","input":"x","encoding_format":"hex"})");
            }).param,
            "encoding_format");
  EXPECT_TRUE(parse_tokenize(R"({"prompt":"x"})").add_special);
  EXPECT_FALSE(parse_tokenize(R"({"messages":[{"role":"user","content":"x"}]})").add_special);
  EXPECT_EQ(refusal_of([] { parse_tokenize("{}"); }).param, "prompt");
  EXPECT_EQ(refusal_of([] {
              parse_tokenize(R"({"prompt":"x","messages":[{"role":"user","content":"x"}]})");
            }).param,
            "prompt");
}

TEST(Requests, BoundBadWordsTogether) {
  const auto words = [](size_t bytes) {
    std::string list;
    for (; bytes > 0; bytes -= std::min<size_t>(bytes, 256))
      list += (list.empty() ? "\"" : ",\"") + std::string(std::min<size_t>(bytes, 256), 'w') + "\"";
    return R"({"model":"m","prompt":"a","bad_words":[)" + list + "]}";
  };
  EXPECT_EQ(parse_completion(words(16384)).bad_words.size(), 64u);
  EXPECT_THROW(parse_completion(words(16385)), ApiError);
}

}  // namespace
}  // namespace trireme::test_requests
