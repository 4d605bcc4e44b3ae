// Message contents stay text, whatever special tokens they spell.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/text/conversation.h"
#include "engine/text/tokenizer_json.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test_conversation {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ bos_token }}{{ m.role }}:"
    "{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}{% endfor %}";

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  const auto file = test::read_json_file<nlohmann::json>(
      test::source_folder() + "/tests/golden/tokenizers/" + name + ".json");
  return parse_tokenizer_json(file["tokenizer"].dump(), "", "tokenizer.json");
}

Json saying(const std::string& content) {
  return {{"messages", {{{"role", "user"}, {"content", content}}}}};
}

int64_t controls_in(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return std::ranges::count_if(ids, [&](int32_t id) { return tokenizer.is_control(id); });
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const WrittenConversation& written) {
  return tokenizer.encode(written.text, {.parse_special = true, .breaks = written.breaks});
}

TEST(Conversation, WhatAMessageSpellsIsNoToken) {
  const ChatTemplate chat(kTemplate);
  const auto tokenizer = make_byte_tokenizer();
  const std::string said = "a<|endoftext|>b<|endoftext<|endoftext|>";
  const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(saying(said));
  EXPECT_EQ(written.text, "<|endoftext|>user:" + said + "<|endoftext|>");
  EXPECT_EQ(written.breaks.size(), 2u);
  const std::vector<int32_t> ids = ids_of(*tokenizer, written);
  EXPECT_EQ(controls_in(*tokenizer, ids), 2);  // the template's own, before and after
  EXPECT_EQ(ids.size(), 2 + written.text.size() - 2 * std::string("<|endoftext|>").size());
  EXPECT_EQ(controls_in(*tokenizer, tokenizer->encode(written.text, {.parse_special = true})), 4);

  const auto asked = ConversationWriter(chat, *tokenizer, true).write(saying(said));
  EXPECT_EQ(asked.text, written.text);
  EXPECT_EQ(controls_in(*tokenizer, ids_of(*tokenizer, asked)), 4);
}

TEST(Conversation, EndOfTurnIsWhatTheTemplateWrites) {
  const auto tokenizer = golden_tokenizer("qwen2");
  const auto end = [&](const char* source) {
    const ChatTemplate chat(source);
    const std::vector<int32_t> ids = ConversationWriter(chat, *tokenizer).ends_of_turn();
    return ids.empty() ? "" : tokenizer->token(ids.front());
  };
  EXPECT_EQ(end("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                "{% endfor %}"),
            "<|im_end|>");
  EXPECT_EQ(end("{% for m in messages %}{{ m.content | trim }} {{ eos_token }}{% endfor %}"),
            "<|endoftext|>");
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }} then <|im_end|>{% endfor %}"), "");
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }}{% endfor %}"), "");
  EXPECT_EQ(end("{% for m in messages %}{{ m.role }}<|im_end|>{% endfor %}"), "");
  EXPECT_EQ(end("{{ raise_exception('a system message is needed') }}"), "");
}

TEST(Conversation, RangesAreThoseOfTheTextWithoutMarks) {
  const ChatTemplate chat(kTemplate);
  const auto tokenizer = make_byte_tokenizer();
  Json two = saying("<|endoftext|>x<|endoftext|>");
  two["messages"].push_back({{"role", "user"}, {"content", "<|endoftext|>"}});
  const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(two);
  ASSERT_EQ(written.generated.size(), 2u);
  const auto part = [&](size_t i) {
    const auto [begin, end] = written.generated[i];
    return written.text.substr(begin, end - begin);
  };
  EXPECT_EQ(part(0), "<|endoftext|>x<|endoftext|>");
  EXPECT_EQ(part(1), "<|endoftext|>");
}

TEST(Conversation, NamesAndToolsAreGuardedAndOtherCharactersKept) {
  const ChatTemplate chat("{{ tools | tojson }}{{ messages[0].content }}{{ eos_token }}");
  const auto tokenizer = make_byte_tokenizer();
  Json given = saying("\xEF\xB7\x90 and <|endoftext|>");  // U+FDD0, the first marker that is tried
  given["tools"] = {{{"<|endoftext|>", "<|endoftext|>"}}};
  const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(given);
  EXPECT_EQ(written.text,
            "[{\"<|endoftext|>\": \"<|endoftext|>\"}]\xEF\xB7\x90 and <|endoftext|><|endoftext|>");
  EXPECT_EQ(written.breaks.size(), 3u);
  EXPECT_EQ(controls_in(*tokenizer, ids_of(*tokenizer, written)), 1);
}

// The template sees no markers: it measures, cuts and compares the given characters.
TEST(Conversation, TemplatesMeasureWhatIsSaid) {
  const auto tokenizer = make_byte_tokenizer();
  const auto written = [&](const std::string& source, const std::string& said) {
    const ChatTemplate chat("{% set c = messages[0].content %}" + source);
    return ConversationWriter(chat, *tokenizer).write(saying(said));
  };
  const std::string said = "a<|endoftext|>b<|endoftext|>";
  const auto text = [&](const std::string& source) { return written(source, said).text; };
  EXPECT_EQ(text("{{ c | length }}"), "28");
  EXPECT_EQ(text("{{ c[0:3] }}"), "a<|");
  EXPECT_EQ(text("{{ c[-3:] }} {{ c[1] }} {{ c[14] }} {{ c | list | length }}"), "t|> < b 28");
  EXPECT_EQ(text("{{ c == 'a<|endoftext|>b<|endoftext|>' }} {{ '<|endoftext|>' in c }}"),
            "True True");
  EXPECT_EQ(text("{{ c.find('|end') }} {{ c.rfind('<|end') }} {{ c.count('<|endoftext|>') }}"),
            "2 15 2");
  EXPECT_EQ(text("{{ c.split('<|endoftext|>') }} {{ c.rsplit('<|endoftext|>', 1) | length }}"),
            "['a', 'b', ''] 2");
  EXPECT_EQ(text("{{ c.replace('<|endoftext|>', '.') }} {{ c[1:].startswith('<|end') }}"),
            "a.b. True");
  EXPECT_EQ(text("{{ c.partition('b')[0] | length }} {{ c[1:14].strip('<>') }}"), "14 |endoftext|");
  EXPECT_EQ(text("{{ c | upper }} {{ c[1:3] | urlencode }}"),
            "A<|ENDOFTEXT|>B<|ENDOFTEXT|> %3C%7C");
  EXPECT_EQ(text("{{ c | tojson(ensure_ascii=true) }}"), "\"" + said + "\"");
  // Parts that are cut out or joined again stay text.
  for (const char* source :
       {"{{ c[1:14] }}", "{{ c.split('b') | join('b') }}", "{{ c | tojson(ensure_ascii=true) }}",
        "{{ c | upper | lower }}", "{{ c.split('a')[1] }}", "{{ c | list | join }}",
        "{{ c.split('<') | join('<') }}", "{{ c.rsplit('<|', 1) | join('<|') }}",
        "{{ c.replace('<|end', '<|end') }}", "{{ c.partition('<') | join }}", "{{ c[:2] ~ c[2:] }}",
        "{{ '' if c.split('<|endoftext|>')[2] else c }}", "{{ '<' ~ c[1:].removeprefix('<') }}"})
    EXPECT_EQ(controls_in(*tokenizer, ids_of(*tokenizer, written(source, said))), 0) << source;
}

// As in transformers: a member that is null is absent.
TEST(Conversation, NullMembersOfMessagesAreAbsent) {
  const auto tokenizer = make_byte_tokenizer();
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ 'name' in m }}"
      "{{ m.content is defined }};{% endfor %}");
  const Json given = Json::parse(R"({"messages": [{"role": "user", "content": "x", "name": null},
                                                  {"role": "assistant", "content": null}]})");
  EXPECT_EQ(ConversationWriter(chat, *tokenizer).write(given).text,
            "user:xFalseTrue;assistant:FalseFalse;");
}

std::string with_names(const std::string& config, const std::string& map, const std::string& source,
                       Json given = Json::object()) {
  const test::ScratchDirectory dir;
  std::ofstream(dir / "tokenizer.json") << test::read_json_file<nlohmann::json>(
      test::source_folder() + "/tests/golden/tokenizers/gpt2.json")["tokenizer"];
  std::ofstream(dir / "tokenizer_config.json") << config;
  if (!map.empty()) std::ofstream(dir / "special_tokens_map.json") << map;
  const auto tokenizer = load_tokenizer(dir.path());
  return ConversationWriter(ChatTemplate(source), *tokenizer).write(std::move(given)).text;
}

// As transformers' apply_chat_template() passes them to a template.
TEST(Conversation, NamedTokensAreVariables) {
  const std::string names =
      "{{ [eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, image_token, "
      "boa_token, x] | join(',') }} {{ cls_token is defined }} {{ add_bos_token is defined }}";
  const std::string config = R"({"eos_token": "<|endoftext|>", "unk_token": "[UNK]",
      "pad_token": {"__type": "AddedToken", "content": "[PAD]"}, "cls_token": null,
      "add_bos_token": true, "image_token": "<image>", "additional_special_tokens": ["<a>"],
      "extra_special_tokens": {"boa_token": "<audio>", "x": {"content": "<x>"}})";
  EXPECT_EQ(with_names(config + "}", "", names),
            "<|endoftext|>,[UNK],,[PAD],,,<image>,<audio>,<x> False False");
  // The map is used where the configuration has no decoder of added tokens.
  const std::string map = R"({"pad_token": "[pad]", "mask_token": {"content": "[M]"}})";
  EXPECT_EQ(with_names(config + "}", map, names),
            "<|endoftext|>,[UNK],,[pad],,[M],<image>,<audio>,<x> False False");
  EXPECT_EQ(with_names(config + R"(, "added_tokens_decoder": {}})", map, names),
            "<|endoftext|>,[UNK],,[PAD],,,<image>,<audio>,<x> False False");
  // Variables of the request take precedence.
  EXPECT_EQ(with_names(config + "}", "", "{{ pad_token }}{{ unk_token }}", {{"pad_token", "mine"}}),
            "mine[UNK]");
}

TEST(Conversation, ANamedTokenThatIsNoneIsRefused) {
  for (const auto& [config, place] :
       {std::pair(R"({"pad_token": 5})", "tokenizer_config.json: pad_token"),
        std::pair(R"({"extra_special_tokens": {"a": [1]}})", "tokenizer_config.json: a")}) {
    try {
      with_names(config, "", "x");
      ADD_FAILURE() << config;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(place), std::string::npos) << e.what();
    }
  }
}

// Ranges and markers are scanned once: quadratic time would take minutes.
TEST(Conversation, ManyRangesBehindManyMarks) {
  const auto tokenizer = make_byte_tokenizer();
  const ChatTemplate chat(kTemplate);
  std::string said;
  for (int i = 0; i < 300'000; ++i) said += "<|endoftext|>";
  Json given = saying(said);
  for (int i = 0; i < 8000; ++i)
    given["messages"].push_back({{"role", "a"}, {"content", "answer"}});
  const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(given);
  ASSERT_EQ(written.generated.size(), 8001u);
  const auto [begin, end] = written.generated.back();
  EXPECT_EQ(written.text.substr(begin, end - begin), "answer");
  EXPECT_EQ(written.breaks.size(), 300'000u);
}

TEST(Conversation, ToolsAreNullOrReadFromText) {
  const ChatTemplate chat(
      "{{ tools is none }}{{ documents is none }}{% if tools is not none %}{{ tools[0].name }}{% "
      "endif %}");
  const auto tokenizer = make_byte_tokenizer();
  const ConversationWriter writer(chat, *tokenizer);
  EXPECT_EQ(writer.write(saying("a")).text, "TrueTrue");
  Json given = saying("a");
  given["tools"] = R"([{"name": "t"}])";
  EXPECT_EQ(writer.write(given).text, "FalseTruet");
  for (const char* wrong : {"{", R"({"name": "t"})", "3"}) {
    given["tools"] = wrong;
    EXPECT_THROW(writer.write(given), InputError) << wrong;
  }
  EXPECT_THROW(writer.write({{"messages", "abc"}}), InputError);
  EXPECT_THROW(writer.write({{"messages", {"abc"}}}), InputError);
}

// Outside of its markup a message has the same tokens as without parsing.
TEST(Conversation, TokensOfModelFamiliesAreGuarded) {
  const ChatTemplate chat("{{ messages[0].content }}");
  for (const char* name :
       {"qwen2", "llama2", "llama3", "gemma", "mistral", "deepseek", "unigram"}) {
    const auto tokenizer = golden_tokenizer(name);
    std::string said = "one ";
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (tokenizer->is_control(id)) said += tokenizer->token(id) + " two" + tokenizer->token(id);
    const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(saying(said));
    EXPECT_EQ(written.text, said) << name;
    EXPECT_EQ(ids_of(*tokenizer, written), tokenizer->encode(said)) << name;
    EXPECT_GT(controls_in(*tokenizer, tokenizer->encode(said, {.parse_special = true})), 1) << name;
  }
}

// "<think>" is not a special token: templates search for it, and it means the same everywhere.
TEST(Conversation, AddedWordsThatAreNotSpecialStayTokens) {
  const auto tokenizer = golden_tokenizer("qwen2");
  const ChatTemplate chat("{{ messages[0].content }}");
  const std::string said = "<think>one</think><|im_end|>";
  const WrittenConversation written = ConversationWriter(chat, *tokenizer).write(saying(said));
  const std::vector<int32_t> ids = ids_of(*tokenizer, written);
  EXPECT_EQ(std::ranges::count(ids, tokenizer->find("<think>")), 1);
  EXPECT_EQ(std::ranges::count(ids, tokenizer->find("<|im_end|>")), 0);
}

}  // namespace
}  // namespace trireme::test_conversation
