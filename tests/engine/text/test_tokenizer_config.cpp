// Tokenizer configuration files compared with transformers (tests/golden/tokenizer_configs.json, by
// make_tokenizer_configs.py), refused keys, and the same for a SentencePiece model.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/tokenizer_keys.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_tokenizer_config {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  return read_json_file<json>(concat(source_folder(), "/tests/golden/", name, ".json"));
}

void write_text(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string tokenizer_text(const std::string& name) {
  const json made = golden("tokenizers/" + name)["tokenizer"];
  return made.is_string() ? made.get<std::string>() : made.dump();
}

// Writes the directory of a case.
std::string write_case(const ScratchDirectory& dir, const json& one) {
  write_text(dir / "tokenizer.json", tokenizer_text(one["tokenizer"].get<std::string>()));
  write_text(dir / "tokenizer_config.json", one["config"].dump());
  for (const auto& [name, content] : one["files"].items()) write_text(dir / name, content.dump());
  return dir / "tokenizer.json";
}

void expect_ids(const Tokenizer& tokenizer, const json& texts, const json& one) {
  const EncodeOptions options{.add_special = true, .parse_special = true};
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = one["ids"][i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(texts[i].get<std::string>(), options), ids) << texts[i];
    EXPECT_EQ(tokenizer.decode(ids), one["decoded"][i].get<std::string>()) << texts[i];
  }
}

TEST(TokenizerConfig, GivesTheIdsAndTheTextOfTransformers) {
  const json file = golden("tokenizer_configs");
  ASSERT_GT(file["cases"].size(), 50U);
  std::set<std::string> seen;
  for (const json& one : file["cases"]) {
    SCOPED_TRACE(
        concat(one["tokenizer"].dump(), one["config"].dump().substr(0, 120), one["files"].dump()));
    const ScratchDirectory dir;
    expect_ids(*load_tokenizer(write_case(dir, one)), file["texts"], one);
    seen.insert(one["ids"].dump());
  }
  EXPECT_GT(seen.size(), 20U) << "the files change nothing";
}

// Through a GGUF file and back to a directory.
TEST(TokenizerConfig, IsKeptByConversions) {
  const json file = golden("tokenizer_configs");
  for (const json& one : file["cases"]) {
    SCOPED_TRACE(concat(one["tokenizer"].dump(), one["config"].dump().substr(0, 120)));
    const ScratchDirectory dir;
    const std::string path = write_case(dir, one);
    const auto expected = load_tokenizer(path);
    GgufWriter(dir / "x.gguf", gguf_tokenizer_metadata(path, expected->vocab_size()), {}).commit();
    expect_ids(*load_tokenizer(dir / "x.gguf"), file["texts"], one);
    const std::string out = dir / "out";
    std::filesystem::create_directory(out);
    for (const auto& [name, content] : gguf_tokenizer_files(dir / "x.gguf"))
      write_text(out + "/" + name, content);
    const auto again = load_tokenizer(out);
    expect_ids(*again, file["texts"], one);
    EXPECT_EQ(again->bos_id(), expected->bos_id());
    EXPECT_EQ(again->eod_id(), expected->eod_id());
  }
}

struct BadSetting {
  const char* config;
  const char* says;
};
class BadTokenizerConfig : public testing::TestWithParam<BadSetting> {};

TEST_P(BadTokenizerConfig, IsRefusedByName) {
  try {
    parse_tokenizer_json(tokenizer_text("llama3"), GetParam().config, "tokenizer.json");
    FAIL() << GetParam().config;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().says), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadTokenizerConfig,
    testing::Values(
        BadSetting{R"([])", "is not a JSON object"},
        BadSetting{R"({"split_special_tokens": true})", "split_special_tokens"},
        BadSetting{R"({"do_lower_case": true})", "do_lower_case"},
        BadSetting{R"({"a_key_of_tomorrow": {"x": 1}})",
                   "\"a_key_of_tomorrow\": unknown key (value {\"x\":1})"},
        BadSetting{R"({"tokenizer_class": "TokenizerOfTomorrow", "add_prefix_space": true})",
                   "\"TokenizerOfTomorrow\" does not determine which applies"},
        BadSetting{R"({"add_prefix_space": "yes"})", "add_prefix_space"},
        BadSetting{R"({"eos_token": 7})", "eos_token"},
        BadSetting{R"({"added_tokens_decoder": {"3": {"content": "<|eot_id|>"}}})",
                   "gives \"<|eot_id|>\" the id 3"},
        BadSetting{R"({"added_tokens_decoder": {"3": {"content": "<new>"}}})",
                   "gives \"<new>\" the id 3, which is"},
        BadSetting{R"({"additional_special_tokens": "x"})", "is not a list of tokens"}));

TEST(TokenizerConfig, CleansNoTextOfAUnigramModel) {
  const char* const cleans = R"({"clean_up_tokenization_spaces": true})";
  EXPECT_THROW(parse_tokenizer_json(tokenizer_text("unigram"), cleans, "x.json"), InputError);
  EXPECT_NO_THROW(parse_tokenizer_json(tokenizer_text("unigram"),
                                       R"({"clean_up_tokenization_spaces": false})", "x.json"));
  EXPECT_NO_THROW(parse_tokenizer_json(tokenizer_text("gpt2"), cleans, "x.json"));
}

TEST(TokenizerConfig, NullAsksForNothing) {
  json all = json::object();
  for (const Key& key : tokenizer_config_schema().keys()) all[key.path] = nullptr;
  all["a_key_of_tomorrow"] = nullptr;
  const auto plain = parse_tokenizer_json(tokenizer_text("gpt2"), "", "x.json");
  const auto with = parse_tokenizer_json(tokenizer_text("gpt2"), all.dump(), "x.json");
  EXPECT_EQ(with->encode("the sea", {.add_special = true}),
            plain->encode("the sea", {.add_special = true}));
  EXPECT_EQ(with->eod_id(), -1) << "eos_token null: there is none";
}

std::string small_pieces() {
  int line = 0;
  return train_sentencepiece({.vocab_size = 320}, [&](std::string& sentence) {
    sentence = concat("the small tokenizer learns word number ", line % 17, " again and again");
    return ++line < 200;
  });
}

// add_prefix_space and legacy of a SentencePiece model.
TEST(TokenizerConfig, SpacesBeforeTheTextsOfASentencePieceModel) {
  const ScratchDirectory dir;
  write_text(dir / "tokenizer.model", small_pieces());
  const auto of = [&](const json& config) {
    json all = config;
    all["added_tokens_decoder"] = {{"320", {{"content", "<mark>"}, {"special", true}}}};
    all["add_bos_token"] = false;
    write_text(dir / "tokenizer_config.json", all.dump());
    return load_tokenizer(dir.path());
  };
  const EncodeOptions options{.add_special = true, .parse_special = true};
  const auto usual = of(json::object()), without = of({{"add_prefix_space", false}}),
             once = of({{"legacy", false}});
  EXPECT_EQ(without->encode(" the"), usual->encode("the"));
  EXPECT_NE(without->encode("the"), usual->encode("the"));
  EXPECT_EQ(without->decode(without->encode(" the")), " the");
  EXPECT_EQ(of({{"add_prefix_space", true}})->encode("the"), usual->encode("the"));
  EXPECT_EQ(of({{"legacy", true}})->encode("a<mark>the", options),
            usual->encode("a<mark>the", options));
  std::vector<int32_t> expected = usual->encode("a");
  expected.push_back(320);
  for (const int32_t id : without->encode("the")) expected.push_back(id);
  EXPECT_EQ(once->encode("a<mark>the", options), expected);
  EXPECT_NE(usual->encode("a<mark>the", options), expected);
  std::string text;
  for (int i = 0; i < 9000; ++i) text += "again and\n again ";
  std::vector<int32_t> long_ids = {320};
  for (const int32_t id : without->encode(text)) long_ids.push_back(id);
  EXPECT_EQ(once->encode("<mark>" + text, options), long_ids);
  // Through a GGUF file, which has its own key for the former; the latter is a Trireme key.
  for (const json& config : {json{{"add_prefix_space", false}}, json{{"legacy", false}}}) {
    const auto wanted = of(config);
    GgufWriter(dir / "x.gguf", gguf_tokenizer_metadata(dir / "tokenizer.model", 321), {}).commit();
    for (const char* const some : {"the", " the", "a<mark>the", "<mark> the"})
      EXPECT_EQ(load_tokenizer(dir / "x.gguf")->encode(some, options),
                wanted->encode(some, options))
          << config << some;
  }
}

TEST(TokenizerConfig, SpecialTokensOfASentencePieceModel) {
  const ScratchDirectory dir;
  write_text(dir / "tokenizer.model", small_pieces());
  write_text(dir / "tokenizer_config.json",
             R"({"pad_token": "[PAD]", "additional_special_tokens": ["<extra>", "<s>"]})");
  const auto tokenizer = load_tokenizer(dir.path());
  EXPECT_EQ(tokenizer->vocab_size(), 322);
  EXPECT_EQ(tokenizer->find("[PAD]") + tokenizer->find("<extra>"), 320 + 321);
  EXPECT_TRUE(tokenizer->is_control(tokenizer->find("<extra>")));
  EXPECT_EQ(tokenizer->find("<s>"), 1);
}

}  // namespace
}  // namespace trireme::test::test_tokenizer_config
