// Calls of tools in texts: found wherever the pieces end, and made by a grammar.
#include <gtest/gtest.h>

#include <random>

#include "serving/structured/tool_call_parser.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test_tool_calls {
namespace {

using namespace test;

// Content, then each call: "content|f({...})|g({})".
std::string parsed(const std::string& text, ToolCallOptions options, size_t piece) {
  ToolCallParser parser(std::move(options));
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  const auto take = [&](const ToolCallDelta& delta) {
    content += delta.content;
    for (const ToolCallDelta::Call& call : delta.calls) {
      if (!call.name.empty()) {
        EXPECT_EQ(call.index, std::ssize(calls));
        calls.emplace_back(call.name, "");
      }
      calls.at(static_cast<size_t>(call.index)).second += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    ToolCallDelta delta;
    parser.push(text.substr(at, piece), delta);
    take(delta);
  }
  ToolCallDelta delta;
  parser.finish(delta);
  take(delta);
  EXPECT_EQ(parser.calls(), std::ssize(calls));
  for (const auto& [name, arguments] : calls) content += "|" + name + "(" + arguments + ")";
  return content;
}

void expect(ToolFormat format, const std::string& text, const std::string& want,
            bool only_calls = false, bool parallel = true) {
  for (const size_t piece : {1, 2, 3, 5, 7, 11, 1000})
    EXPECT_EQ(parsed(text, {format, only_calls, parallel, {"f", "g"}}, piece), want)
        << text << ", in pieces of " << piece;
}

TEST(ToolCalls, OfHermes) {
  const auto of = [](const std::string& text, const std::string& want) {
    expect(ToolFormat::kHermes, text, want);
  };
  of("just text <tool, a < b and <tool_cal", "just text <tool, a < b and <tool_cal");
  of("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
     "|f({\"a\": [1, \"}\\\"\"]})");
  of("Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
     "<tool_call>{\"arguments\": {\"x\": 1} , \"name\": \"g\"}</tool_call>\n",
     "Let me see.|f({})|g({\"x\": 1})");
  of("<tool_call>{\"name\": \"f\"}</tool_call>", "|f({})");
  of("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "|f({\"a\": 1)");
  of("<tool_call>{\"nam", "<tool_call>{\"nam");
  of("<tool_call> nothing", "<tool_call> nothing");
  of("<tool_call>{\"x\": {\"name\": \"f\"}}", "<tool_call>{\"x\": {\"name\": \"f\"}}");
  of("  two spaces ", "  two spaces ");
  of("<<tool_call>{\"name\":\"f\"}</tool_call> then", "< then|f({})");
}

// Joined, two members would be no JSON.
TEST(ToolCalls, TakeTheFirstOfSeveralArguments) {
  const auto of = [](const std::string& members, const std::string& want) {
    expect(ToolFormat::kHermes, "<tool_call>{" + members + "}</tool_call>", want);
    expect(ToolFormat::kLlama3, "{" + members + "}", want);
  };
  of(R"("name": "f", "arguments": {"a": 1}, "parameters": {"b": 2})", R"(|f({"a": 1}))");
  of(R"("name": "f", "parameters": {"b": 2} , "arguments": {"a": 1})", R"(|f({"b": 2}))");
  of(R"("arguments": {"a": 1}, "parameters": {"b": 2}, "name": "f")", R"(|f({"a": 1}))");
  of(R"("parameters": {"b": 2}, "name": "f", "arguments": {"a": 1})", R"(|f({"b": 2}))");
  of(R"("name": "f", "arguments": {}, "arguments": {"a": 1}, "x": 3)", "|f({})");
  of(R"("name": "f", "arguments": {"a": 1}, "name": ")" + std::string(300, 'g') + "\"",
     R"(|f({"a": 1}))");
}

TEST(ToolCalls, OfLlama3) {
  const auto of = [](const std::string& text, const std::string& want) {
    expect(ToolFormat::kLlama3, text, want);
  };
  of("{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f({\"a\": 1})");
  of("<|python_tag|>{\"name\": \"h\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "|h({})|g({})");
  // An object that is an answer, not a call.
  of("{\"name\": \"Ada\", \"age\": 36} is she", "{\"name\": \"Ada\", \"age\": 36} is she");
  of("{\"a\": 1}", "{\"a\": 1}");
  of("see {\"name\": \"f\"}", "see {\"name\": \"f\"}");
}

TEST(ToolCalls, OfMistral) {
  expect(ToolFormat::kMistral,
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"[\"}}, {\"name\": \"g\"}]",
         "|f({\"a\": \"[\"})|g({})");
  expect(ToolFormat::kMistral, "[1, 2]", "[1, 2]");
  expect(ToolFormat::kMistral, "[{\"name\": \"f\", \"arguments\": {}}]", "|f({})", true);
  expect(ToolFormat::kMistral, "[TOOL_CALLS][{\"name\": \"f\"},{\"name\": \"g\"}]", "|f({})", false,
         false);
}

// Texts that are calls from their beginning, or none.
TEST(ToolCalls, OfTextsThatAreEither) {
  const auto either = [](ToolFormat format, const std::string& text, const std::string& want) {
    for (const size_t piece : {1, 2, 3, 5, 1000})
      EXPECT_EQ(parsed(text, {.format = format, .names = {"f", "g"}, .either = true}, piece), want)
          << text << ", in pieces of " << piece;
  };
  const std::string marked = R"({"a":"<tool_call>\n{\"name\": \"f\"}"})";
  either(ToolFormat::kHermes, marked, marked);
  either(ToolFormat::kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
         "|f({})");
  either(ToolFormat::kMistral, R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g"}])",
         R"(|f({"a": 1})|g({}))");
  for (const char* content :
       {"[]", "[1, 2]", R"([{"name": "h"}, {"name": "f"}])", R"({"name": "f"})", "[[]]"})
    either(ToolFormat::kMistral, content, content);
  either(ToolFormat::kLlama3, R"({"name": "f", "parameters": {}})", "|f({})");
  either(ToolFormat::kLlama3, R"({"x": [{"name": "f"}]})", R"({"x": [{"name": "f"}]})");
}

TEST(ToolCalls, MayStandInPlaceOfATextThatMustBeSomething) {
  const std::string tools = R"("parallel":false,"tools":[{"name":"f"}]})";
  const auto grammar = CompiledGrammar::compile(
      {GrammarSource::Kind::kRegex, "[0-9]+", {}, concat(R"({"format":"hermes",)", tools)},
      trie_of(byte_tokens()));
  EXPECT_TRUE(takes(*grammar, "42"));
  EXPECT_TRUE(takes(*grammar, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes(*grammar, "word"));
  EXPECT_FALSE(takes(*grammar, "4<tool_call>"));
}

TEST(ToolCalls, FormatsAreKnownByTheirTemplates) {
  const auto format_of = [](const char* source) {
    return tool_format_of_templates({{kDefaultChatTemplate, source}});
  };
  EXPECT_EQ(format_of("...'<tool_call>\\n'..."), ToolFormat::kHermes);
  EXPECT_EQ(format_of("[AVAILABLE_TOOLS]..[TOOL_CALLS]"), ToolFormat::kMistral);
  EXPECT_EQ(format_of("{{ 'ipython' }}"), ToolFormat::kLlama3);
  EXPECT_EQ(format_of("<|im_start|>"), ToolFormat::kNone);
  // The template that is used with tools decides.
  EXPECT_EQ(tool_format_of_templates({{"default", "..."}, {"tool_use", "[TOOL_CALLS]"}}),
            ToolFormat::kMistral);
  EXPECT_EQ(tool_format_of_templates({{"default", "<tool_call>"}, {"tool_use", "..."}}),
            ToolFormat::kNone);
  EXPECT_EQ(tool_format_of_templates({{"rag", "<tool_call>"}}), ToolFormat::kNone);
  EXPECT_EQ(tool_format("llama3_json"), ToolFormat::kLlama3);
  EXPECT_THROW(tool_format("other"), InputError);
}

// As many as a request may have: what JSON's values are is there once.
TEST(ToolCalls, OfManyToolsHaveAGrammar) {
  std::string tools;
  for (int i = 0; i < 128; ++i)
    tools += concat(i == 0 ? "" : ",", R"({"name":"tool_)", i,
                    R"(","parameters":{"properties":{"query":{"type":"string"},"most":)"
                    R"({"type":"integer"},"share":{"type":"number"}},"required":["query"]}})");
  const auto grammar = CompiledGrammar::compile(
      {GrammarSource::Kind::kToolCalls,
       concat(R"({"format":"mistral","parallel":true,"tools":[)", tools, "]}")},
      trie_of(byte_tokens()), {.time = std::chrono::seconds(60)});
  EXPECT_TRUE(takes(*grammar, R"([{"name": "tool_127", "arguments": {"query":"a"}}])"));
  EXPECT_FALSE(takes(*grammar, R"([{"name": "tool_128", "arguments": {"query":"a"}}])"));
}

// A text in which no call begins, or one and then a call whose arguments are held to the schema.
TEST(ToolCalls, MayComeBehindAnyText) {
  const std::string tools =
      R"("tools":[{"name":"f","parameters":{"properties":{"a":{"type":"integer"}},"required":["a"]}},)"
      R"({"name":"g","parameters":{"type":"object"}}])";
  const auto of = [&](const char* format) {
    return CompiledGrammar::compile(
        {GrammarSource::Kind::kToolCalls,
         concat(R"({"format":")", format, R"(","parallel":true,"free":true,)", tools, "}")},
        trie_of(byte_tokens()));
  };
  const std::string good = R"({"name": "f", "arguments": {"a":12}})";
  const std::string bad = R"({"name": "f", "arguments": {"a":"x"}})";
  const std::string free = R"({"name": "g", "arguments": {"any":["x",null]}})";
  const auto hermes = of("hermes");
  for (const char* text :
       {"", "any text", "a <tool_cal", "<<tool_<tool_call", "{\"a\": 1}", "\u00e9\n"})
    EXPECT_TRUE(takes(*hermes, text)) << text;
  const std::string end = "\n</tool_call>";
  for (const char* before : {"", "Let me see.\n", "<tool_<"}) {
    const std::string begin = concat(before, "<tool_call>\n");
    EXPECT_TRUE(takes(*hermes, begin + good + end));
    EXPECT_TRUE(takes(*hermes, begin + free + end + "\n<tool_call>\n" + good + end));
    EXPECT_FALSE(takes(*hermes, begin + bad + end));
    EXPECT_FALSE(takes(*hermes, begin + "no call"));
  }
  const auto mistral = of("mistral");
  EXPECT_TRUE(takes(*mistral, "[1] a text"));
  EXPECT_TRUE(takes(*mistral, concat("[TOOL_[TOOL_CALLS][", good, ", ", free, "]")));
  EXPECT_FALSE(takes(*mistral, concat("[TOOL_CALLS][", bad, "]")));
  const auto llama = of("llama3_json");
  const auto with = [](std::string call) {
    return call.replace(call.find("arguments"), 9, "parameters");
  };
  EXPECT_TRUE(takes(*llama, with(good)));
  EXPECT_TRUE(takes(*llama, with(good) + "; " + with(free)));
  EXPECT_TRUE(takes(*llama, "I call <|python_tag|>" + with(good)));
  EXPECT_TRUE(takes(*llama, "  a {text}"));
  EXPECT_FALSE(takes(*llama, with(bad)));
  EXPECT_FALSE(takes(*llama, "  " + with(good)));  // would be found without being held to anything
  EXPECT_FALSE(takes(*llama, "I call <|python_tag|>" + with(bad)));
}

// What the grammar makes is what the parser finds.
TEST(ToolCalls, GrammarsMakeCallsThatAreFound) {
  const std::string tools =
      R"("tools":[{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}},)"
      R"("required":["a"]}},{"name":"g"}])";
  std::mt19937 random(3);
  const std::vector<std::string> vocabulary = byte_tokens({"{\"name\": \"", "</tool_call>", "}}"});
  const auto trie = trie_of(vocabulary);
  for (const char* format : {"hermes", "llama3_json", "mistral"})
    for (const bool parallel : {false, true}) {
      const auto grammar = CompiledGrammar::compile(
          {GrammarSource::Kind::kToolCalls,
           concat(R"({"format":")", format, R"(","parallel":)", parallel, ",", tools, "}")},
          trie);
      for (int n = 0; n < 20; ++n) {
        const auto reader = grammar->begin({kEnd}, kManyTokens);
        std::string text;
        bool goes_on = true;
        while (goes_on) {
          const auto ids = allowed(reader->mask(), std::ssize(vocabulary));
          const int32_t id =
              ids[0] == kEnd && text.size() > 150 ? kEnd : ids[random() % ids.size()];
          text += vocabulary[static_cast<size_t>(id)];
          goes_on = id != kEnd && text.size() < 2000 && reader->accept(id);
        }
        const std::string found = parsed(text, {tool_format(format), true, true, {"f", "g"}}, 3);
        EXPECT_TRUE(found.starts_with("|f({") || found.starts_with("|g({})")) << text << found;
        EXPECT_TRUE(parallel || found.find('|', 1) == std::string::npos) << text;
      }
    }
}

}  // namespace
}  // namespace trireme::test_tool_calls
