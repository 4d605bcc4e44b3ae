// Tokenizers in GGUF files: the same ids as the tokenizer.json or .model that they were written
// from, also with llama.cpp's own keys only.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_keys.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_gguf_tokenizer {
namespace {

nlohmann::json golden(const std::string& name) {
  return read_json_file<nlohmann::json>(
      concat(test::source_folder(), "/tests/golden/tokenizers/", name, ".json"));
}

std::string write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string text_of(const nlohmann::json& tokenizer) {
  return tokenizer.is_string() ? tokenizer.get<std::string>() : tokenizer.dump();
}

ChatTemplateSources default_only(const char* source) { return {{kDefaultChatTemplate, source}}; }

std::unique_ptr<Tokenizer> through_gguf(const std::string& path, const GgufMetadata& words) {
  GgufWriter(path, words, {}).commit();
  return load_tokenizer(path);
}

void expect_same(const Tokenizer& a, const Tokenizer& b, const std::vector<std::string>& texts) {
  EXPECT_EQ(a.bos_id(), b.bos_id());
  EXPECT_EQ(a.eod_id(), b.eod_id());
  for (const std::string& text : texts)
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      const std::vector<int32_t> ids = a.encode(text, options);
      ASSERT_EQ(ids, b.encode(text, options)) << text;
      EXPECT_EQ(a.decode(ids), b.decode(ids)) << text;
    }
}

TEST(GgufTokenizer, ByteLevelInBothForms) {
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    const nlohmann::json data = golden(name);
    const std::string json = write_file(dir / "tokenizer.json", text_of(data["tokenizer"]));
    std::vector<std::string> texts;
    for (const auto& one : data["cases"]) texts.push_back(one["text"].get<std::string>());
    ASSERT_GT(texts.size(), 20U);
    const auto expected = load_tokenizer(json);
    GgufMetadata words = gguf_tokenizer_metadata(json, expected->vocab_size());
    EXPECT_TRUE(words.contains("tokenizer.ggml.merges"));
    expect_same(*expected, *through_gguf(dir / "whole.gguf", words), texts);
    words.erase("tokenizer.huggingface.json");
    expect_same(*expected, *through_gguf(dir / "words.gguf", words), texts);
  }
}

const std::string& small_model() {
  static const std::string kModel = [] {
    int line = 0;
    return train_sentencepiece({.vocab_size = 320}, [&](std::string& sentence) {
      sentence = concat("the small tokenizer learns word number ", line % 17, " again and again");
      return ++line < 200;
    });
  }();
  return kModel;
}

const std::vector<std::string> kTexts = {"", "the small word", " again  and",
                                         "unseen \xC3\xA9\xE4\xB8\xAD\n",
                                         "the<mark>the <mark> small<|turn|>again"};

TEST(GgufTokenizer, SentencePiece) {
  const ScratchDirectory dir;
  const std::string path = write_file(dir / "x.model", small_model());
  const auto expected = load_tokenizer(path);
  const GgufMetadata words = gguf_tokenizer_metadata(path, expected->vocab_size());
  ASSERT_TRUE(words.contains("tokenizer.ggml.scores"));
  expect_same(*expected, *through_gguf(dir / "x.gguf", words), kTexts);
}

// Tokens added to a SentencePiece model are kept, and so are the tokens added around a text.
TEST(GgufTokenizer, SentencePieceWithAddedTokensAndItsSettings) {
  for (const bool bos : {false, true})
    for (const bool eos : {false, true}) {
      const ScratchDirectory dir;
      const std::string path = write_file(dir / "tokenizer.model", small_model());
      write_file(dir / "tokenizer_config.json",
                 nlohmann::json{{"add_bos_token", bos}, {"add_eos_token", eos}}.dump());
      write_file(dir / "added_tokens.json", R"({"<|turn|>": 320, "<mark>": 321})");
      write_file(dir / "special_tokens_map.json", R"({"additional_special_tokens": ["<|turn|>"]})");
      write_file(dir / "chat_template.jinja", "{{ messages }}");
      const auto expected = load_tokenizer(path);
      EXPECT_EQ(expected->encode("", {.add_special = true}).size(),
                (bos ? 1u : 0u) + (eos ? 1u : 0u));
      const GgufMetadata words = gguf_tokenizer_metadata(path, expected->vocab_size());
      const auto read = through_gguf(dir / "x.gguf", words);
      EXPECT_EQ(read->vocab_size(), 322);
      expect_same(*expected, *read, kTexts);
      EXPECT_EQ(gguf_chat_templates(dir / "x.gguf"), default_only("{{ messages }}"));
    }
}

TEST(GgufTokenizer, SpacesInFrontAreTheFilesToSay) {
  const ScratchDirectory dir;
  const std::string path = write_file(dir / "x.model", small_model());
  GgufMetadata words = gguf_tokenizer_metadata(path, 320);
  words["tokenizer.ggml.add_space_prefix"] = true;
  const auto with = through_gguf(dir / "with.gguf", words);
  words["tokenizer.ggml.add_space_prefix"] = false;
  const auto without = through_gguf(dir / "without.gguf", words);
  EXPECT_EQ(without->encode(" the"), with->encode("the"));
  EXPECT_NE(without->encode("the"), with->encode("the"));
  EXPECT_EQ(without->decode(without->encode(" the")), " the");
  EXPECT_EQ(with->decode(with->encode("the")), "the");
}

// The tokenizer files written for a HuggingFace directory are equivalent to the GGUF file that they
// are made from.
TEST(GgufTokenizer, AsTheFilesOfADirectory) {
  std::vector<std::pair<std::string, GgufMetadata>> cases;
  const ScratchDirectory dir;
  std::vector<std::string> texts = kTexts;
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    const nlohmann::json data = golden(name);
    const std::string json =
        write_file(dir / concat(name, ".json"), data["tokenizer"].is_string()
                                                    ? data["tokenizer"].get<std::string>()
                                                    : data["tokenizer"].dump());
    for (const auto& one : data["cases"]) texts.push_back(one["text"].get<std::string>());
    GgufMetadata words = gguf_tokenizer_metadata(json, load_tokenizer(json)->vocab_size());
    cases.emplace_back(concat(name, "_whole"), words);
    words.erase("tokenizer.huggingface.json");
    words["tokenizer.ggml.add_bos_token"] = words["tokenizer.ggml.add_eos_token"] = true;
    words["tokenizer.chat_template"] = std::string("x{{ eos_token }}");
    words["tokenizer.chat_template.tool_use"] = std::string("y{{ tools }}");
    cases.emplace_back(name, words);
  }
  const std::string model = write_file(dir / "x.model", small_model());
  GgufMetadata words = gguf_tokenizer_metadata(model, 330);
  std::get<std::vector<int64_t>>(words["tokenizer.ggml.token_type"])[300] = 4;  // user-defined
  words["tokenizer.ggml.add_bos_token"] = false;
  words["tokenizer.ggml.add_eos_token"] = true;
  cases.emplace_back("pieces", words);
  for (const auto& [name, of] : cases) {
    SCOPED_TRACE(name);
    const auto file = through_gguf(dir / (name + ".gguf"), of);
    const std::string out = dir / name;
    std::filesystem::create_directory(out);
    const GgufTokenizerFiles files = gguf_tokenizer_files(dir / (name + ".gguf"));
    std::filesystem::create_directory(out + "/additional_chat_templates");
    for (const auto& [file_name, content] : files) write_file(out + "/" + file_name, content);
    EXPECT_EQ(files[0].first, name == "pieces" ? "tokenizer.model" : "tokenizer.json");
    const auto read = load_tokenizer(out);
    EXPECT_EQ(read->vocab_size(), file->vocab_size());
    expect_same(*file, *read, texts);
    EXPECT_EQ(find_chat_templates(out), gguf_chat_templates(dir / (name + ".gguf")));
  }
}

TEST(GgufTokenizer, CarriesTheChatTemplate) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", text_of(golden("gpt2")["tokenizer"]));
  const auto words = [&] { return gguf_tokenizer_metadata(json, 0); };
  EXPECT_FALSE(words().contains(kGgufChatTemplate));
  write_file(dir / "chat_template.jinja", "{{ messages[0].content }}");
  GgufWriter(dir / "x.gguf", words(), {}).commit();
  EXPECT_EQ(chat_templates_of(dir / "x.gguf"), default_only("{{ messages[0].content }}"));
  // From one such file to another.
  EXPECT_TRUE(gguf_tokenizer_metadata(dir / "x.gguf", 0).contains(kGgufChatTemplate));
  std::filesystem::create_directory(dir / "additional_chat_templates");
  write_file(dir / "additional_chat_templates/tool_use.jinja", "{{ tools }}");
  GgufWriter(dir / "z.gguf", words(), {}).commit();
  std::filesystem::remove_all(dir / "additional_chat_templates");
  EXPECT_EQ(find_chat_templates(dir / "z.gguf").at("tool_use"), "{{ tools }}");
  EXPECT_EQ(std::get<std::vector<std::string>>(
                gguf_tokenizer_metadata(dir / "z.gguf", 0).at("tokenizer.chat_templates")),
            std::vector<std::string>{"tool_use"});
  // An invalid template name does not prevent the use of the tokenizer.
  GgufMetadata named = words();
  named[concat(kGgufChatTemplate, ".a/b")] = "{{ documents }}";
  GgufWriter(dir / "n.gguf", named, {}).commit();
  std::filesystem::create_directory(dir / "n");
  for (const auto& [name, content] : gguf_tokenizer_files(dir / "n.gguf"))
    write_file(dir / ("n/" + name), content);
  EXPECT_EQ(find_chat_templates(dir / "n"), find_chat_templates(dir / "n.gguf"));
  EXPECT_NO_THROW(load_tokenizer(dir / "n"));
  // A file without templates uses those of its folder.
  GgufWriter(dir / "y.gguf", {}, {}).commit();
  EXPECT_EQ(find_chat_templates(dir / "y.gguf"), default_only("{{ messages[0].content }}"));
  std::filesystem::remove(dir / "chat_template.jinja");
  EXPECT_TRUE(find_chat_templates(dir / "y.gguf").empty());
}

// A tokenizer.json that llama.cpp's keys cannot express is stored as a whole, with its special
// tokens.
nlohmann::json without_words() {
  nlohmann::json tokenizer = golden("gpt2")["tokenizer"];
  if (tokenizer.is_string())
    tokenizer = parse_json_text<nlohmann::json>(tokenizer.get<std::string>());
  tokenizer["pre_tokenizer"]["use_regex"] = false;
  return tokenizer;
}

void write_files(const std::string& gguf, const std::string& folder) {
  for (const auto& [name, content] : gguf_tokenizer_files(gguf)) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), content);
  }
}

TEST(GgufTokenizer, SpecialTokensWithoutLlamaCppsWords) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", without_words().dump());
  for (const char* config : {R"({"bos_token": "!", "eos_token": "a", "pad_token": "b"})",
                             R"({"bos_token": null, "eos_token": {"content": "a"}})"}) {
    write_file(dir / "tokenizer_config.json", config);
    const auto expected = load_tokenizer(json);
    const GgufMetadata words = gguf_tokenizer_metadata(json, expected->vocab_size());
    EXPECT_FALSE(words.contains("tokenizer.ggml.model"));
    expect_same(*expected, *through_gguf(dir / "x.gguf", words), kTexts);
    write_files(dir / "x.gguf", dir / "out");
    expect_same(*expected, *load_tokenizer(dir / "out"), kTexts);
    std::filesystem::remove_all(dir / "out");
  }
}

// Every special token id survives a round trip through a directory under its own key.
TEST(GgufTokenizer, EveryRoleIsKeptByConversions) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", text_of(golden("gpt2")["tokenizer"]));
  const int64_t size = load_tokenizer(json)->vocab_size();
  const GgufMetadata made = gguf_tokenizer_metadata(json, size);
  for (const bool whole : {true, false})
    for (const bool words : {true, false}) {
      if (!whole && !words) continue;
      GgufMetadata all = made;
      if (!whole) all.erase("tokenizer.huggingface.json");
      if (!words)
        std::erase_if(all,
                      [](const auto& one) { return one.first.find("ggml") != std::string::npos; });
      int64_t id = 0;
      for (const TokenRole& role : kTokenRoles) all[role.gguf] = id++;
      all["tokenizer.ggml.bos_token_id"] = size - 1;
      all["tokenizer.ggml.add_sep_token"] = true;
      all["tokenizer.ggml.token_type_count"] = int64_t{2};
      all["tokenizer.chat_template.tool_use"] = std::string("tools");
      all["tokenizer.chat_template"] = std::string("plain");
      all["tokenizer.chat_templates"] = std::vector<std::string>{"tool_use"};
      GgufWriter(dir / "x.gguf", all, {}).commit();
      write_files(dir / "x.gguf", dir / "out");
      GgufMetadata again = gguf_tokenizer_metadata(dir / "out/tokenizer.json", size);
      for (const auto& [key, value] : all) {
        if (key == "tokenizer.huggingface.json" || key == "tokenizer.ggml.token_type") continue;
        EXPECT_TRUE(again[key] == value) << key;
      }
      EXPECT_EQ(find_chat_templates(dir / "out"),
                (ChatTemplateSources{{"default", "plain"}, {"tool_use", "tools"}}));
      expect_same(*load_tokenizer(dir / "x.gguf"), *load_tokenizer(dir / "out"), kTexts);
      std::filesystem::remove_all(dir / "out");
    }
}

// llama.cpp's flags take precedence over the stored tokenizer.json.
TEST(GgufTokenizer, FlagsAroundATextOfAWholeTokenizer) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", without_words().dump());
  write_file(dir / "tokenizer_config.json", R"({"bos_token": "!", "eos_token": "a"})");
  for (const bool bos : {false, true})
    for (const bool eos : {false, true}) {
      GgufMetadata words = gguf_tokenizer_metadata(json, 0);
      words["tokenizer.ggml.add_bos_token"] = bos;
      words["tokenizer.ggml.add_eos_token"] = eos;
      const auto read = through_gguf(dir / "x.gguf", words);
      std::vector<int32_t> expected;
      if (bos) expected.push_back(read->find("!"));
      if (eos) expected.push_back(read->find("a"));
      EXPECT_EQ(read->encode("", {.add_special = true}), expected);
      write_files(dir / "x.gguf", dir / "out");
      expect_same(*read, *load_tokenizer(dir / "out"), kTexts);
      std::filesystem::remove_all(dir / "out");
    }
}

TEST(GgufTokenizer, KeysThatMayChangeTheEncodingAreRefusedByName) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", text_of(golden("gpt2")["tokenizer"]));
  const GgufMetadata words = gguf_tokenizer_metadata(json, 0);
  const std::pair<const char*, GgufValue> bad[] = {
      {"tokenizer.ggml.a_key_of_tomorrow", true},
      {"tokenizer.ggml.remove_extra_whitespaces", true},
      {"tokenizer.ggml.precompiled_charsmap", std::vector<int64_t>{1, 2}},
      {"tokenizer.rwkv.world", std::string("x")},
      {"tokenizer.chat_template.tool_use", int64_t{3}},
      {"tokenizer.ggml.padding_token_id", int64_t{1} << 30},
      {"tokenizer.ggml.mask_token_id", std::string("[MASK]")}};
  for (const auto& [key, value] : bad) {
    GgufMetadata with = words;
    with[key] = value;
    try {
      through_gguf(dir / "x.gguf", with);
      FAIL() << key;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
    }
  }
  GgufMetadata without = words;
  without["tokenizer.ggml.remove_extra_whitespaces"] = false;
  without["tokenizer.ggml.precompiled_charsmap"] = std::vector<int64_t>{};
  EXPECT_NO_THROW(through_gguf(dir / "x.gguf", without));
}

TEST(GgufTokenizer, FilledUpToTheTableAndUnknownKinds) {
  const ScratchDirectory dir;
  const std::string json =
      write_file(dir / "tokenizer.json", golden("gpt2")["tokenizer"].is_string()
                                             ? golden("gpt2")["tokenizer"].get<std::string>()
                                             : golden("gpt2")["tokenizer"].dump());
  const int64_t size = load_tokenizer(json)->vocab_size() + 9;
  GgufMetadata words = gguf_tokenizer_metadata(json, size);
  EXPECT_EQ(std::ssize(std::get<std::vector<std::string>>(words["tokenizer.ggml.tokens"])), size);
  words.erase("tokenizer.huggingface.json");
  words["tokenizer.ggml.pre"] = std::string("another");
  EXPECT_THROW(through_gguf(dir / "a.gguf", words), InputError);
  words["tokenizer.ggml.model"] = std::string("bert");
  EXPECT_THROW(through_gguf(dir / "b.gguf", words), InputError);
  words["tokenizer.ggml.pre"] = std::string("gpt-2");
  words["tokenizer.ggml.model"] = std::string("gpt2");
  words["tokenizer.ggml.eos_token_id"] = size;
  EXPECT_THROW(through_gguf(dir / "c.gguf", words), InputError);
  words["tokenizer.ggml.eos_token_id"] = int64_t{0};
  EXPECT_NO_THROW(through_gguf(dir / "d.gguf", words));
  std::get<std::vector<std::string>>(words["tokenizer.ggml.tokens"])[3] = "\xC3!";  // invalid UTF-8
  EXPECT_THROW(through_gguf(dir / "e.gguf", words), InputError);
  EXPECT_TRUE(gguf_tokenizer_metadata("byte", 300).empty());
}

}  // namespace
}  // namespace trireme::test::test_gguf_tokenizer
