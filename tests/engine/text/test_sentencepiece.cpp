#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "engine/core/error.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/streamed.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_sentencepiece {
namespace {

using test::streamed;

// A few hundred lines with enough repetition for a small vocabulary.
std::vector<std::string> training_lines() {
  const std::vector<std::string> words = {"the",  "ship", "sails", "three", "rows", "of",
                                          "oars", "sea",  "12",    "köln",  "and",  "wind"};
  std::mt19937 random(7);
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) {
    std::string line;
    for (int w = 0; w < 12; ++w) line += (w > 0 ? " " : "") + words[random() % words.size()];
    lines.push_back(line + ".");
  }
  return lines;
}

std::string train(const SentencePieceTraining& options) {
  size_t next = 0;
  const std::vector<std::string> lines = training_lines();
  return train_sentencepiece(options, [&](std::string& sentence) {
    if (next == lines.size()) return false;
    sentence = lines[next++];
    return true;
  });
}

const std::string& small_model() {
  static const std::string model = train({.vocab_size = 320, .model_type = "bpe"});
  return model;
}

TEST(SentencePiece, RoundTripsText) {
  const std::vector<std::string> texts = {"the ship sails",
                                          "  two leading spaces",
                                          "tabs\tand\nnew lines\n\n",
                                          "",
                                          " ",
                                          "\u20ac 99",
                                          "unseen \U0001F600 characters",
                                          "trailing  ",
                                          "</s><s><unk>"};
  for (const char* type : {"bpe", "unigram"}) {
    const auto tokenizer =
        parse_sentencepiece(train({.vocab_size = 300, .model_type = type}), "test.model");
    EXPECT_EQ(tokenizer->vocab_size(), 300);
    EXPECT_EQ(tokenizer->bos_id(), 1);
    EXPECT_EQ(tokenizer->eod_id(), 2);
    for (const std::string& text : texts) {
      std::vector<int32_t> ids = tokenizer->encode(text);
      for (const int32_t id : ids) {
        EXPECT_GE(id, 3) << type << " " << text;  // text never gives a control token id
        EXPECT_LT(id, 300);
      }
      EXPECT_EQ(tokenizer->decode(ids), text) << type;
      EXPECT_GE(std::ssize(ids) * tokenizer->max_bytes_of_id(), std::ssize(text)) << type;
      ids.insert(ids.begin(), tokenizer->bos_id());
      ids.push_back(tokenizer->eod_id());
      EXPECT_EQ(tokenizer->decode(ids), text) << type;
      EXPECT_EQ(streamed(*tokenizer, ids), text) << type;
    }
    EXPECT_LT(tokenizer->encode("the ship sails").size(), 10u);  // of 14 characters
  }
}

// Files next to a tokenizer.model keep the tokens that were added to it.
TEST(SentencePiece, FilesBesideTheModelAddTokens) {
  const test::ScratchDirectory dir;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(dir / name, std::ios::binary) << text;
  };
  write("tokenizer.model", small_model());
  const auto plain = load_tokenizer(dir.path());
  const int32_t size = 320;
  ASSERT_EQ(plain->vocab_size(), size);
  write("added_tokens.json", R"({"<|turn|>": 321, "<|end|>": 320, "<word>": 322})");
  write("special_tokens_map.json",
        R"({"additional_special_tokens": ["<|turn|>"], "eos_token": {"content": "<|end|>"}})");
  write("tokenizer_config.json", R"({"eos_token": "<|end|>", "bos_token": null})");
  const auto added = load_tokenizer(dir.path());
  EXPECT_EQ(added->vocab_size(), size + 3);
  EXPECT_EQ(added->bos_id(), -1);
  EXPECT_EQ(added->eod_id(), size);
  EXPECT_EQ(added->find("<word>"), size + 2);
  EXPECT_EQ(added->token(size + 1), "<|turn|>");
  EXPECT_TRUE(added->is_control(size + 1));
  EXPECT_FALSE(added->is_control(size + 2));
  std::vector<int32_t> expected = plain->encode("the");
  expected.push_back(size + 2);
  EXPECT_EQ(added->encode("the<word>"), expected);
  EXPECT_EQ(added->decode(expected), "the<word>");
  EXPECT_EQ(added->encode("<|turn|>"), plain->encode("<|turn|>")) << "text, unless asked";
  EXPECT_EQ(added->encode("<|turn|>", {.parse_special = true}), std::vector<int32_t>{size + 1});
  const std::vector<size_t> breaks = {1};
  EXPECT_EQ(added->encode("<|turn|>", {.parse_special = true, .breaks = breaks}),
            plain->encode("<|turn|>"));
  EXPECT_EQ(added->decode(std::vector<int32_t>{size + 1, size}), "");

  write("tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "added_tokens_decoder":
            {"320": {"content": "<|other|>", "special": true}, "3": {"content": "<byte>"}}})");
  const auto decoder = load_tokenizer(dir.path());
  EXPECT_EQ(decoder->token(size), "<|other|>") << "the newer file counts";
  EXPECT_EQ(decoder->encode("<byte>", {.add_special = true}),
            (std::vector<int32_t>{3, plain->eod_id()}));
  // Without added_tokens_decoder the map takes precedence, as in transformers.
  write("tokenizer_config.json", R"({"eos_token": "<|none|>"})");
  EXPECT_EQ(load_tokenizer(dir.path())->eod_id(), size);
  std::filesystem::remove(dir / "special_tokens_map.json");
  for (const char* bad : {R"({"eos_token": "<|none|>"})", R"({"eos_token": 3})", R"([])",
                          R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
                          R"({"added_tokens_decoder": {"320": {"content": ""}}})",
                          R"({"added_tokens_decoder": {"325": {"content": "behind a hole"}}})",
                          R"({"added_tokens_decoder": {"99999999999": {"content": "far away"}}})",
                          R"({"split_special_tokens": true})", R"({"a_key_of_tomorrow": 1})"}) {
    write("tokenizer_config.json", bad);
    EXPECT_THROW(load_tokenizer(dir.path()), InputError) << bad;
  }
}

TEST(SentencePiece, LongTextsEqualTheLibrarysIds) {
  std::mt19937 random(3);
  const std::vector<std::string> lines = training_lines();
  std::string text;
  while (text.size() < 150000) {
    const std::string& line = lines[random() % lines.size()];
    text += line.substr(0, line.find(' ', random() % 60));
    text += std::string(random() % 3, '\n') + std::string(random() % 3, ' ');
  }
  for (const char* type : {"bpe", "unigram"}) {
    const std::string model = train({.vocab_size = 300, .model_type = type});
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    const auto tokenizer = parse_sentencepiece(model, "test.model");
    EXPECT_EQ(tokenizer->encode(text), library.EncodeAsIds(text)) << type;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << type;
  }
}

TEST(SentencePiece, TrainingIsReproducible) {
  for (const char* type : {"bpe", "unigram"}) {
    const SentencePieceTraining options{.vocab_size = 300, .model_type = type};
    EXPECT_EQ(train(options), train(options)) << type;
  }
}

TEST(SentencePiece, TrainingRefusesWhatCannotWork) {
  EXPECT_THROW(train({.vocab_size = 259}), InputError);
  EXPECT_THROW(train({.vocab_size = 1 << 20}), InputError);  // more than the text supports
  EXPECT_THROW(train({.vocab_size = 300, .model_type = "word"}), InputError);
  EXPECT_THROW(train_sentencepiece({.vocab_size = 300}, [](std::string&) { return false; }),
               InputError);
  // Exceptions of the text source are rethrown unchanged.
  EXPECT_THROW(train_sentencepiece({.vocab_size = 300},
                                   [](std::string&) -> bool { fail_input("a bad file"); }),
               InputError);
}

TEST(SentencePiece, DamagedModelsAreErrorsNotCrashes) {
  const std::string& model = small_model();
  EXPECT_THROW(parse_sentencepiece("", "x.model"), InputError);
  EXPECT_THROW(parse_sentencepiece("this is no model", "x.model"), InputError);
  for (size_t cut = 0; cut < model.size(); cut += 1 + model.size() / 40) {
    EXPECT_THROW(parse_sentencepiece(model.substr(0, cut), "x.model"), InputError) << cut;
  }
  std::mt19937 random(11);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = model;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const auto tokenizer = parse_sentencepiece(damaged, "x.model");
      tokenizer->decode(tokenizer->encode("the ship sails \u20ac"));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace trireme::test_sentencepiece
