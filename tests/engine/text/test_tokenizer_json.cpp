// HuggingFace tokenizers compared with their library on the same texts (tests/golden/tokenizers, by
// make_tokenizers.py), and files that are damaged or use unsupported features.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "engine/text/tokenizer_json.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test_tokenizer_json {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  return test::read_json_file<json>(test::source_folder() + "/tests/golden/tokenizers/" + name +
                                    ".json");
}

std::unique_ptr<Tokenizer> tokenizer_of(const json& content, const std::string& config = "") {
  return parse_tokenizer_json(content.dump(), config, "tokenizer.json");
}

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, GivesTheIdsAndTheTextOfHuggingFace) {
  const json file = golden(GetParam());
  const auto tokenizer = tokenizer_of(file["tokenizer"]);
  ASSERT_GT(file["cases"].size(), 50u);
  for (const json& c : file["cases"]) {
    const auto text = c["text"].get<std::string>();
    const auto marked = c["marked"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(text), c["ids"].get<std::vector<int32_t>>()) << c;
    EXPECT_EQ(tokenizer->encode(text, {.add_special = true, .parse_special = true}), marked) << c;
    EXPECT_EQ(tokenizer->decode(marked), c["decoded"].get<std::string>()) << c;
  }
}

TEST_P(TokenizerJson, StreamsTheSameTextAndKnowsItsTokens) {
  const json file = golden(GetParam());
  const auto tokenizer = tokenizer_of(file["tokenizer"]);
  for (const json& c : file["cases"]) {
    const auto ids = c["marked"].get<std::vector<int32_t>>();
    const auto detokenizer = tokenizer->detokenizer();
    DetokenizedText out;
    for (const int32_t id : ids) {
      detokenizer->push(id, !tokenizer->is_control(id), out);
      EXPECT_EQ(tokenizer->find(tokenizer->token(id)), id);
    }
    detokenizer->finish(out);
    EXPECT_EQ(out.text, c["decoded"].get<std::string>());
  }
  EXPECT_EQ(tokenizer->find("no such token"), -1);
}

TEST_P(TokenizerJson, GivesSeveralThreadsTheSame) {
  const json file = golden(GetParam());
  const auto tokenizer = tokenizer_of(file["tokenizer"]);
  std::string text;
  for (const json& c : file["cases"]) text += c["text"].get<std::string>() + "\n";
  const std::vector<int32_t> want = tokenizer->encode(text);
  std::vector<std::vector<int32_t>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& ids : got) threads.emplace_back([&] { ids = tokenizer->encode(text); });
  }
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

TEST_P(TokenizerJson, HasNoFewerTokensThanItSays) {
  const json file = golden(GetParam());
  const auto tokenizer = tokenizer_of(file["tokenizer"]);
  const int64_t most = tokenizer->max_bytes_of_id();
  const bool has_bound =
      std::ranges::none_of(std::array{"unigram", "words"},
                           [](const char* without) { return GetParam() == std::string(without); });
  ASSERT_EQ(most > 0, has_bound);
  if (most == 0) return;
  std::vector<std::string> texts;
  for (const json& c : file["cases"]) texts.push_back(c["text"].get<std::string>());
  // Its longest tokens, and texts that normalizers shorten.
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) texts.push_back(tokenizer->token(id));
  texts.insert(texts.end(), {" ", "\u212A", "\u1112\u1161\u11AB", "\xFF"});
  for (std::string text : texts) {
    for (int i = 0; i < 6; ++i) text += text;
    for (const bool special : {false, true}) {
      const auto ids = tokenizer->encode(text, {.parse_special = special});
      EXPECT_GE(std::ssize(ids) * most, std::ssize(text)) << text.substr(0, 60);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJson,
                         testing::Values("deepseek", "gemma", "gpt2", "llama2", "llama3", "mistral",
                                         "qwen2", "unigram", "words"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(TokenizerFiles, SpecialTokensAreTextUntilAskedFor) {
  const auto tokenizer = tokenizer_of(golden("llama3")["tokenizer"]);
  const int32_t end = tokenizer->find("<|eot_id|>");
  ASSERT_GE(end, 0);
  EXPECT_TRUE(tokenizer->is_control(end));
  const auto plain = tokenizer->encode("x<|eot_id|>");
  EXPECT_EQ(std::ranges::count(plain, end), 0);
  EXPECT_EQ(tokenizer->decode(plain), "x<|eot_id|>");
  EXPECT_EQ(tokenizer->encode("x<|eot_id|>", {.parse_special = true}).back(), end);
  EXPECT_EQ(tokenizer->encode("x", {.add_special = true}).front(), tokenizer->bos_id());
}

TEST(TokenizerFiles, BosAndEodAreTheConfigurationsOrTheUsualOnes) {
  const json content = golden("qwen2")["tokenizer"];
  const auto usual = tokenizer_of(content);
  EXPECT_EQ(usual->eod_id(), usual->find("<|endoftext|>"));
  const auto named =
      tokenizer_of(content, R"({"bos_token": null, "eos_token": {"content": "<|im_end|>"}})");
  EXPECT_EQ(named->bos_id(), -1);
  EXPECT_EQ(named->eod_id(), named->find("<|im_end|>"));
  EXPECT_THROW(tokenizer_of(content, R"({"eos_token": "<none>"})"), InputError);
}

TEST(TokenizerFiles, LongWordsTakeNoQuadraticTime) {
  const auto tokenizer = tokenizer_of(golden("llama2")["tokenizer"]);  // the text is one word
  std::string text;
  for (int i = 0; i < 40000; ++i) text += "the rowing crews ";
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(TokenizerFiles, ADirectoryIsItsTokenizer) {
  const test::ScratchDirectory dir;
  std::ofstream(dir / "tokenizer.json") << golden("gpt2")["tokenizer"];
  std::ofstream(dir / "tokenizer_config.json") << R"({"eos_token": "<|endoftext|>"})";
  const auto tokenizer = load_tokenizer(dir.path());
  EXPECT_EQ(tokenizer->token(tokenizer->eod_id()), "<|endoftext|>");
  try {
    load_tokenizer("meta-llama/Llama-3.2-1B");
    FAIL() << "a hub's name was loaded";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("hf download meta-llama/Llama-3.2-1B"), std::string::npos)
        << e.what();
  }
}

TEST(TokenizerFiles, HolesAmongTheIdsAreListed) {
  json content = golden("words")["tokenizer"];
  json& added = content["added_tokens"];  // 0, which is also in the model, and 273 to 276
  ASSERT_EQ(added.size(), 5U);
  added.erase(3);
  added.erase(1);
  try {
    tokenizer_of(content);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("2 of the ids from 0 to 276 have no token: 273, 275;"),
              std::string::npos)
        << e.what();
  }
  content["added_tokens"].erase(2);  // the last one: a smaller vocabulary
  content["added_tokens"].erase(1);
  EXPECT_EQ(tokenizer_of(content)->vocab_size(), 273);
}

struct Damage {
  const char* pointer;  // position in gpt2's file
  const char* value;
  const char* says;
};

class DamagedTokenizer : public testing::TestWithParam<Damage> {};

TEST_P(DamagedTokenizer, IsRefusedByName) {
  json content = golden("gpt2")["tokenizer"];
  content[json::json_pointer(GetParam().pointer)] = parse_json_text<json>(GetParam().value);
  try {
    tokenizer_of(content);
    FAIL() << GetParam().pointer;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().says), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, DamagedTokenizer,
    testing::Values(
        Damage{"/model/type", R"("WordPiece")", "WordPiece"},
        Damage{"/model/vocab", R"([])", "vocab"},
        Damage{"/model/vocab/x", R"(99999999)", "99999999"},
        Damage{"/model/vocab/x", R"(-1)", "-1"}, Damage{"/model/vocab/x", R"(0)", "the id 0"},
        Damage{"/model/vocab/x", R"("a")", "not a whole number"},
        Damage{"/model/merges", R"(["a"])", "not a pair"},
        Damage{"/model/merges", R"(["a qqqq"])", "not in the vocabulary"},
        Damage{"/model/unk_token", R"("?none?")", "?none?"},
        Damage{"/model/dropout", "0.5", "dropout"},
        Damage{"/pre_tokenizer",
               R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
               "regular expression"},
        Damage{"/pre_tokenizer",
               R"x({"type": "Split", "pattern": {"Regex": "(?~a)"}, "behavior": "Isolated"})x",
               "absent operator"},
        Damage{"/pre_tokenizer",
               R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"})", "Odd"},
        Damage{"/pre_tokenizer", R"({"type": "Bert"})", "Bert"},
        Damage{"/normalizer", R"({"type": "Precompiled"})", "Precompiled"},
        Damage{"/normalizer", R"({"type": "Replace", "content": "x"})", "pattern"},
        Damage{"/decoder", R"({"type": "CTC"})", "CTC"},
        Damage{"/post_processor", R"({"type": "BertProcessing"})", "BertProcessing"},
        Damage{"/added_tokens/0/id", "-3", "added token"},
        Damage{"/added_tokens/0/content", R"("")", "added token"},
        Damage{"/post_processor",
               R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "b"}}],
            "special_tokens": {"b": {"ids": [70000]}}})",
               "70000"}));

TEST(TokenizerFiles, SequencesWithoutEndAreRefused) {
  json content = golden("gpt2")["tokenizer"];
  json nested = content["pre_tokenizer"];
  for (int i = 0; i < 12; ++i) nested = {{"type", "Sequence"}, {"pretokenizers", {nested}}};
  content["pre_tokenizer"] = nested;
  EXPECT_THROW(tokenizer_of(content), InputError);
}

}  // namespace
}  // namespace trireme::test_tokenizer_json
