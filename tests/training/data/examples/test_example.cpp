// Fine-tuning examples: the learned tokens of each form of record.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "tests/training/data/examples/example_case.h"
#include "training/data/examples/example.h"
#include "training/data/examples/example_set.h"

namespace trireme::test_example {
namespace {

using test::kMarked;
using test::kTemplate;
using test::ScratchDirectory;
using test::template_sources;

// The tokens, with learned ones in brackets; the end of document is '$'.
std::string shown(const Example& example) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    if ((example.loss_mask[i] != 0) != inside) out += std::exchange(inside, !inside) ? "]" : "[";
    out += example.tokens[i] == 256 ? '$' : static_cast<char>(example.tokens[i]);
  }
  return inside ? out + "]" : out;
}

std::string read(const char* chat_template, const char* record, bool assistant_only = true) {
  const auto tokenizer = make_byte_tokenizer();
  return shown(ExampleReader(*tokenizer, template_sources(chat_template), assistant_only)
                   .read(parse_json_text<Json>(record)));
}

constexpr const char* kTalk = R"({"messages": [{"role": "system", "content": "s"},
    {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"},
    {"role": "user", "content": "on"}, {"role": "assistant", "content": "no"}]})";

TEST(Examples, OnlyWhatTheAssistantWroteIsLearned) {
  const std::string wanted = "<system>s$<user>hi$<assistant>[ho$]<user>on$<assistant>[no$]";
  EXPECT_EQ(read(kTemplate, kTalk), wanted);
  EXPECT_EQ(read(kMarked, kTalk), wanted);
  EXPECT_EQ(read(kTemplate, kTalk, false),
            "[<system>s$<user>hi$<assistant>ho$<user>on$<assistant>no$]");
  EXPECT_EQ(read(kTemplate, R"({"messages": [{"role": "user", "content": "hi"}]})"), "<user>hi$");
}

TEST(Examples, OtherForms) {
  EXPECT_EQ(read("", R"({"prompt": "a: ", "completion": "bc"})"), "a: [bc$]");
  EXPECT_EQ(read("", R"({"prompt": "a: ", "completion": "bc"})", false), "[a: bc$]");
  EXPECT_EQ(read("", R"({"text": "abc", "prompt": null})"), "[abc$]");
  EXPECT_EQ(read(kTemplate, R"({"conversations": [{"from": "human", "value": "a"},
                                {"from": "gpt", "value": "b"}]})"),
            "<user>a$<assistant>[b$]");
  EXPECT_EQ(read(kTemplate, R"({"prompt": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}]})"),
            "<user>a$<assistant>b$<user>c$<assistant>[d$]");
  EXPECT_EQ(read(kTemplate, R"({"instruction": "a", "input": "b", "output": "c"})"),
            "<user>a\nb$<assistant>[c$]");
  const std::string alpaca = read("", R"({"instruction": "a", "input": "", "output": "c"})");
  EXPECT_TRUE(alpaca.ends_with("request.\n\n### Instruction:\na\n\n### Response:\n[c$]")) << alpaca;
  // Markup inside a prompt's text is text.
  EXPECT_EQ(read("", R"({"prompt": "<|endoftext|>", "completion": "b"})"), "<|endoftext|>[b$]");
}

// Records as in published data sets.
TEST(Examples, WordsOfOthers) {
  EXPECT_EQ(read(kTemplate, R"({"system": "s", "conversations": [{"from": "human", "value": "a"},
                                {"from": "gpt", "value": "b"}]})"),
            "<system>s$<user>a$<assistant>[b$]");
  constexpr const char* kTools =
      "{% if tools is not none %}{% for t in tools %}{{ t.name }};{% endfor %}{% endif %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  constexpr const char* kMessages =
      R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(read(kTools, concat("{", kMessages).c_str()), "<user>a<assistant>[b]");
  for (const char* tools : {R"("[{\"name\": \"t\"}]")", R"([{"name": "t"}])"})
    EXPECT_EQ(read(kTools, concat("{\"tools\": ", tools, ", ", kMessages).c_str()),
              "t;<user>a<assistant>[b]");
  EXPECT_EQ(read(kTools, concat(R"({"tools": "", )", kMessages).c_str()), "<user>a<assistant>[b]");
}

TEST(Examples, MessagesWithoutWeightAreNotLearned) {
  for (const char* no : {R"("weight": 0)", R"("train": false)"}) {
    const std::string record =
        concat(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )", no,
               R"(, "content": "b"}, {"role": "user", "content": "c"},
                  {"role": "assistant", "weight": 1, "train": true, "content": "d"}]})");
    const std::string wanted = "<user>a$<assistant>b$<user>c$<assistant>[d$]";
    EXPECT_EQ(read(kTemplate, record.c_str()), wanted);
    EXPECT_EQ(read(kMarked, record.c_str()), wanted);
    EXPECT_EQ(read(kTemplate, record.c_str(), false),
              "[<user>a$<assistant>]b[$<user>c$<assistant>d$]");
  }
  EXPECT_THROW(read(kTemplate, R"({"messages": [{"role": "user", "weight": 0.5}]})"), InputError);
}

// Earlier responses lose their thinking, as in Qwen3's template.
constexpr const char* kThinks = R"({%- set ns = namespace(last=0) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
{%- set content = m.content -%}
{%- if m.role == 'assistant' -%}
{%- set thought = '' -%}
{%- if '</think>' in content -%}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{ '<assistant>' }}{% if loop.index0 > ns.last %}{{ '<think>' + thought + '</think>' }}{% endif %}
{{- content + eos_token + '\n' -}}
{%- else -%}{{ '<' + m.role + '>' + content + eos_token + '\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%})";

TEST(Examples, TemplatesThatDropWhatWasThoughtAreAskedWithMarks) {
  EXPECT_EQ(
      read(kThinks, kTalk),
      "<system>s$\n<user>hi$\n<assistant>[ho$\n]<user>on$\n<assistant>[<think></think>no$\n]");
  EXPECT_EQ(read(kThinks, R"({"messages": [{"role": "user", "content": "<assistant>a"},
      {"role": "assistant", "content": "<think>\nt\n</think>\n\nb "},
      {"role": "user", "content": "c"},
      {"role": "assistant", "content": "<think>\nu\n</think>\n\nd"}]})"),
            "<user><assistant>a$\n<assistant>[b $\n]<user>c$\n<assistant>[<think>u</think>d$\n]");
  EXPECT_EQ(read(kThinks, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "d"}, {"role": "assistant", "content": "e"}]})"),
            "<user>a$\n<assistant>b$\n<user>c$\n<assistant>[<think></think>d$\n]<assistant>"
            "[<think></think>e$\n]");
}

// The end marker of a response differs where more follows, as in gpt-oss's template, and the
// generation prompt is longer than the text before a response, as in DeepSeek-V3's.
TEST(Examples, TemplatesThatEndTheLastAnswerInAnotherWayAreAskedWithMarks) {
  constexpr const char* kReturns =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if loop.last %}{{ '<|endoftext|>' }}"
      "{% else %}{{ eos_token }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(read(kReturns, kTalk), read(kTemplate, kTalk));
  constexpr const char* kReturnsText =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '.' if loop.last else '|' }}"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_THROW(read(kReturnsText, kTalk), InputError);
  constexpr const char* kAsksMore =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  EXPECT_EQ(read(kAsksMore, kTalk), read(kTemplate, kTalk));
  EXPECT_EQ(read(kAsksMore, R"({"prompt": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}]})"),
            "<user>a$<assistant>b$<user>c$<assistant>[d$]");
}

TEST(Examples, TextWithMarkupIsTextUnlessItIsAskedToBeParsed) {
  const auto tokenizer = make_byte_tokenizer();
  const ExampleReader text(*tokenizer, {}, true), parsed(*tokenizer, {}, true, true);
  for (const char* record :
       {R"({"text": "a<|endoftext|>b"})", R"({"prompt": "a<|endoftext|>", "completion": "b"})"}) {
    const Json json = parse_json_text<Json>(record);
    EXPECT_EQ(text.read(json).tokens.size(), std::string("a<|endoftext|>b").size() + 1);
    EXPECT_TRUE(text.read(json).spells_markup);
    EXPECT_EQ(parsed.read(json).tokens, (std::vector<int32_t>{'a', 256, 'b', 256}));
    EXPECT_FALSE(parsed.read(json).spells_markup);
  }
  EXPECT_FALSE(text.read(parse_json_text<Json>(R"({"text": "a"})")).spells_markup);
}

std::string read_pair(const char* record) {
  const auto tokenizer = make_byte_tokenizer();
  const auto [chosen, rejected] = ExampleReader(*tokenizer, template_sources(kTemplate), true)
                                      .read_pair(parse_json_text<Json>(record));
  return concat(shown(chosen), " ", shown(rejected));
}

TEST(Examples, PairsOfOtherForms) {
  const std::string wanted = "<user>p$<assistant>[yes$] <user>p$<assistant>[no$]";
  const std::string
      yes = R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "yes"}])",
      no = R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "no"}])";
  const auto pair = [&](const char* prompt) {
    return read_pair(
        concat("{", prompt, R"("chosen": )", yes, R"(, "rejected": )", no, "}").c_str());
  };
  EXPECT_EQ(pair(""), wanted);
  EXPECT_EQ(pair(R"("prompt": "p", )"), wanted);
  EXPECT_EQ(pair(R"("prompt": [{"role": "user", "content": "p"}], )"), wanted);
  EXPECT_EQ(read_pair(R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "yes"}],
                          "rejected": [{"role": "assistant", "content": "no"}]})"),
            wanted);
  EXPECT_EQ(read_pair(R"({"prompt": [{"role": "user", "content": "p"}], "chosen": "yes",
                          "rejected": "no"})"),
            wanted);
  EXPECT_EQ(read_pair(R"({"chosen": "p q yes", "rejected": "p q no"})"), "p q[ yes$] p q[ no$]");
  EXPECT_THROW(read_pair(R"({"chosen": "yes", "rejected": "no"})"), InputError);
  EXPECT_THROW(read_pair(R"({"chosen": [{"role": "assistant", "content": "yes"}],
                             "rejected": [{"role": "assistant", "content": "no"}]})"),
               InputError);
}

TEST(Examples, PairsShareThePrompt) {
  const auto tokenizer = make_byte_tokenizer();
  const auto [chosen, rejected] =
      ExampleReader(*tokenizer, {}, true)
          .read_pair(parse_json_text<Json>(R"({"prompt": "p", "chosen": "yes",
                                                                 "rejected": "no"})"));
  EXPECT_EQ(shown(chosen), "p[yes$]");
  EXPECT_EQ(shown(rejected), "p[no$]");
}

TEST(Examples, SaysWhatIsWrong) {
  const auto said = [](const char* chat_template, const char* record) {
    try {
      read(chat_template, record);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(said("", R"({"question": "a"})").find("expected \"messages\""), std::string::npos);
  EXPECT_NE(said("", kTalk).find("give finetune.chat_template"), std::string::npos);
  EXPECT_NE(said(kTemplate, R"({"messages": [{"content": "a"}]})").find("without a \"role\""),
            std::string::npos);
  const auto of_message = [&](const char* message) {
    return said(
        kTemplate,
        concat(R"({"messages": [{"role": "user", "content": "a"}, )", message, "]}").c_str());
  };
  constexpr const char* kRefused[][2] = {
      {R"({"role": "alien", "content": "b"})", "message 2: role \"alien\" is not supported"},
      {R"({"role": "assistant", "content": 5})", "message 2 of \"messages\" has the \"content\" 5"},
      {R"({"role": "assistant", "content": ["b"]})", "has the \"content\" [\"b\"]"},
      {R"({"role": "assistant"})", "no \"content\" and no \"tool_calls\""},
      {R"({"role": "assistant", "content": null})", "no \"content\" and no \"tool_calls\""},
      {R"({"role": "assistant", "content": null, "tool_calls": []})", "no \"tool_calls\""},
      {R"({"role": "user"})", "message 2 of \"messages\" has no \"content\""}};
  for (const auto& [message, why] : kRefused)
    EXPECT_NE(of_message(message).find(why), std::string::npos) << message << of_message(message);
  EXPECT_NE(
      said(kTemplate, R"({"conversations": [{"from": "robot", "value": "a"}]})").find("\"robot\""),
      std::string::npos);
  EXPECT_NE(said(kTemplate, R"({"conversations": [{"from": "gpt"}]})").find("no \"value\""),
            std::string::npos);
  EXPECT_EQ(of_message(R"({"role": "assistant", "content": null, "tool_calls": [{"name": "t"}]})"),
            "");
  // Earlier responses are written differently from the last one: their tokens cannot be identified.
  constexpr const char* kForgets =
      "{% for m in messages %}<{{ m.role }}>{% if loop.last %}{{ m.content }}{% endif %}{% endfor "
      "%}";
  EXPECT_NE(said(kForgets, kTalk).find("{% generation %}"), std::string::npos);
}

// Null members of a message are absent.
TEST(Examples, NullIsNotLearned) {
  constexpr const char* kCalls = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "tool_calls": [{"name": "t"}]},
      {"role": "tool", "content": "b", "name": null}, {"role": "assistant", "content": "c"}]})";
  EXPECT_EQ(read(kTemplate, kCalls), "<user>a$<assistant>[$]<tool>b$<assistant>[c$]");
}

TEST(Examples, ARoleThatTheTemplateNamesIsKnown) {
  constexpr const char* kCritic =
      "{% for m in messages %}{% if m.role == 'critic' %}!{% endif %}{{ m.content }}{% endfor %}";
  constexpr const char* kRecord = R"({"messages": [{"role": "critic", "content": "a"}]})";
  EXPECT_EQ(read(kCritic, kRecord), "!a");
  EXPECT_THROW(read(kTemplate, kRecord), InputError);
}

TEST(Examples, PairsThatTeachNothingAreRefused) {
  for (const char* wrong : {R"({"prompt": "p", "chosen": "a", "rejected": "a"})",
                            R"({"prompt": "p", "chosen": "", "rejected": "a"})",
                            R"({"prompt": "p", "chosen": "a", "rejected": ""})",
                            R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "a"}],
            "rejected": [{"role": "assistant", "content": "a"}]})",
                            R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "a"}],
            "rejected": []})",
                            R"({"prompt": "p", "chosen": [{"role": "assistant", "content": ""}],
            "rejected": [{"role": "assistant", "content": "a"}]})"})
    EXPECT_THROW(read_pair(wrong), InputError) << wrong;
}

// Tools and documents of a record select the template and are part of the text, or an error.
TEST(Examples, WhatTheTemplateIsGivenBesideMessages) {
  const auto tokenizer = make_byte_tokenizer();
  const std::string turns = kTemplate;
  const ExampleReader reader(*tokenizer,
                             {{"default", "{{ mood }}" + turns},
                              {"tool_use",
                               "{% if messages | length > 1 %}T{{ tools | length }}"
                               "{% endif %}" +
                                   turns}},
                             true);
  const auto read = [&](const char* fields) {
    return shown(
        reader.read(parse_json_text<Json>(concat(R"({"messages": [{"role": "user", "content": "a"},
                                {"role": "assistant", "content": "b"}])",
                                                 fields, "}"))));
  };
  EXPECT_EQ(read(""), "<user>a$<assistant>[b$]");
  EXPECT_EQ(read(R"(, "tools": null)"), "<user>a$<assistant>[b$]");
  // A prefix of the conversation may not contain them.
  EXPECT_EQ(read(R"(, "tools": [{"name": "f"}])"), "T1<user>a$<assistant>[b$]");
  EXPECT_EQ(read(R"(, "tools": "[{\"name\": \"f\"}]")"), "T1<user>a$<assistant>[b$]");
  EXPECT_EQ(read(R"(, "chat_template_kwargs": {"mood": "M"})"), "M<user>a$<assistant>[b$]");
  EXPECT_EQ(read(R"(, "documents": [])"), "<user>a$<assistant>[b$]");
  for (const char* wrong : {R"(, "documents": [{"text": "x"}])", R"(, "chat_template_kwargs": [1])",
                            R"(, "chat_template_kwargs": {"messages": []})",
                            R"(, "chat_template_kwargs": {"tools": []})"})
    EXPECT_THROW(read(wrong), InputError) << wrong;
  const char* pair = R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "y"}],
      "rejected": [{"role": "assistant", "content": "n"}], "documents": [{"text": "x"}]})";
  EXPECT_THROW(reader.read_pair(parse_json_text<Json>(pair)), InputError);
}

TEST(Examples, TextThatTheTemplateDoesNotReadIsNamed) {
  const ScratchDirectory dir;
  const Json user = {{"role", "user"}, {"content", "a"}};
  Json answer = {{"role", "assistant"}, {"content", "b"}};
  std::ofstream file(dir / "a.jsonl");
  file << Json{{"messages", {user, answer}}}.dump() << "\n";
  answer["reasoning"] = "why";
  answer["plan"] = "first";
  file << Json{{"messages", {user, answer}}}.dump() << "\n";
  const Json turn = {{"from", "gpt"}, {"value", "b"}, {"plan", "then"}};
  file << Json{{"conversations", {{{"from", "human"}, {"value", "a"}}, turn}}}.dump() << "\n";
  file.close();
  const auto tokenizer = make_byte_tokenizer();
  const auto unread = [&](const std::string& more) {
    const ExampleReader reader(*tokenizer, template_sources(kTemplate + more), true);
    const ExampleSet set({dir / "a.jsonl"}, reader, {.sequence_length = 64, .vocab_size = 257});
    std::string out;
    for (const auto& [name, member] : set.stats().unread_members)
      out +=
          concat(name, " ", member.records, " ", member.first.substr(dir.path().size() + 1), ";");
    return out;
  };
  EXPECT_EQ(unread(""), "plan 2 a.jsonl:2;reasoning 1 a.jsonl:2;");
  EXPECT_EQ(unread("{{ messages[0].thinking }}"), "plan 2 a.jsonl:2;");
  EXPECT_EQ(unread("{{ messages[0].reasoning }}{{ messages[0]['plan'] }}"), "");
}

TEST(Examples, TokensOfRealTokenizersAreFoundInTheText) {
  const ScratchDirectory dir;
  for (const char* name : {"gpt2", "llama3", "llama2", "qwen2"}) {
    const auto golden = test::read_json_file<Json>(
        concat(test::source_folder(), "/tests/golden/tokenizers/", name, ".json"));
    std::ofstream(dir / "tokenizer.json") << golden.at("tokenizer").dump();
    const auto tokenizer = load_tokenizer(dir / "tokenizer.json");
    const ExampleReader reader(*tokenizer, {}, true);
    const Json record = {{"prompt", "How many oars?\n"}, {"completion", " One hundred, and 70."}};
    const Example example = reader.read(record);
    std::vector<int32_t> learned, asked;
    for (size_t i = 0; i < example.tokens.size(); ++i)
      (example.loss_mask[i] != 0 ? learned : asked).push_back(example.tokens[i]);
    EXPECT_TRUE(
        tokenizer->decode(example.tokens).ends_with("How many oars?\n One hundred, and 70."))
        << name;
    EXPECT_TRUE(tokenizer->decode(asked).ends_with("How many oars?\n")) << name;
    EXPECT_FALSE(learned.empty()) << name;
  }
}

}  // namespace
}  // namespace trireme::test_example
