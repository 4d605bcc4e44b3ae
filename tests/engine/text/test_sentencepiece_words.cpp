// SentencePiece BPE models on Trireme's own path give the library's ids; other models keep using
// the library.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "engine/core/error.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/sentencepiece_words.h"
#include "tests/support/sanitized.h"
#include "tests/support/source_folder.h"

namespace trireme::test_sentencepiece_words {
namespace {

using Arguments = std::unordered_map<std::string, std::string>;

// The documents of this repository: prose, code, tables, paths.
const std::vector<std::string>& corpus() {
  static const std::vector<std::string> lines = [] {
    std::vector<std::string> out;
    std::vector<std::filesystem::path> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::source_folder() + "/docs"))
      if (entry.path().extension() == ".md") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& path : files) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) out.push_back(line);
    }
    return out;
  }();
  return lines;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::vector<std::string> sentences) : sentences_(std::move(sentences)) {}
  bool done() const override { return at_ == sentences_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return sentences_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> sentences_;
  size_t at_ = 0;
};

std::string train(const Arguments& changes) {
  Arguments arguments = {{"model_type", "bpe"},
                         {"vocab_size", "1000"},
                         {"normalization_rule_name", "identity"},
                         {"remove_extra_whitespaces", "false"},
                         {"allow_whitespace_only_pieces", "true"},
                         {"byte_fallback", "true"},
                         {"character_coverage", "0.999"},
                         {"minloglevel", "2"}};
  for (const auto& [name, value] : changes) arguments[name] = value;
  std::vector<std::string> sentences;
  for (const std::string& line : corpus())
    if (!line.empty() && line.size() < 2000 && sentences.size() < 1500) sentences.push_back(line);
  std::string model;
  Sentences iterator(std::move(sentences));
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
  EXPECT_TRUE(status.ok()) << status.message();
  return model;
}

// Texts that are difficult for tokenizers.
std::vector<std::string> hostile() {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "   ",
                                    "\n",
                                    "\n\n \n",
                                    " a",
                                    "a ",
                                    " a  b   c ",
                                    "\t\ttabs\tand\r\nlines\r",
                                    "\xE2\x96\x81",
                                    "\xE2\x96\x81\xE2\x96\x81 x \xE2\x96\x81y",
                                    "x\xE2\x96\x82y \xE2\x80\x94 dash",
                                    "<s>a</s><unk><0x41>",
                                    "<|user|> hello [INST] ",
                                    "köln \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD 字 字字",
                                    "ﬁ ﬂ Ａ １ é e\xCC\x81",
                                    "\xEF\xBB\xBF\xE3\x80\x80wide\xC2\xA0space",
                                    "0123456789 1,000.00 -1e-5",
                                    "bad \xFF\xFE bytes \xE2\x96 cut \xC0\x80 \xED\xA0\x80",
                                    std::string("nul\0 and \x01\x1F\x7F", 13),
                                    std::string(5000, ' '),
                                    std::string(5000, 'a'),
                                    std::string(3000, '\n')};
  std::string row;
  for (int i = 0; i < 3000; ++i) row += "字";
  texts.push_back(row);
  return texts;
}

void expect_equal(const std::string& model, const std::vector<std::string>& texts) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  const auto tokenizer = parse_sentencepiece(model, "test.model");
  int wrong = 0;
  for (const std::string& text : texts)
    if (tokenizer->encode(text) != library.EncodeAsIds(text) && ++wrong <= 3)
      ADD_FAILURE() << "other ids: " << testing::PrintToString(text.substr(0, 200));
  EXPECT_EQ(wrong, 0);
}

bool own_path(const std::string& model) {
  return SentencePieceWords::make(parse_sentence_pieces(model, "test.model"), "test.model") !=
         nullptr;
}

std::string random_text(std::mt19937& random, const std::vector<std::string>& parts, int most) {
  std::string text;
  for (int n = static_cast<int>(random() % static_cast<uint32_t>(most)); n > 0; --n)
    text += parts[random() % parts.size()];
  return text;
}

// Lines of the corpus, their pieces in other orders, and difficult texts.
std::vector<std::string> texts_for(const std::string& model) {
  std::vector<std::string> texts = corpus();
  for (const std::string& text : hostile()) texts.push_back(text);
  std::string whole;
  for (const std::string& line : corpus()) whole += line + "\n";
  texts.push_back(whole);
  std::vector<std::string> parts = hostile();
  std::erase_if(parts, [](const std::string& part) { return part.size() > 100; });
  for (const SentencePieces::Piece& piece : parse_sentence_pieces(model, "test.model").pieces)
    parts.push_back(piece.text);
  std::mt19937 random(11);
  for (int i = 0; i < (test::kSanitized ? 300 : 3000); ++i)
    texts.push_back(random_text(random, parts, 30));
  return texts;
}

TEST(SentencePieceWords, TrainedModelsGiveTheLibrarysIds) {
  for (const Arguments& changes : std::vector<Arguments>{
           {},
           {{"vocab_size", "2000"}},
           {{"add_dummy_prefix", "false"}},
           {{"split_digits", "true"}, {"allow_whitespace_only_pieces", "false"}},
           {{"character_coverage", "0.98"}, {"split_by_unicode_script", "false"}},
           {{"control_symbols", "<|user|>,[INST]"}}}) {
    const std::string model = train(changes);
    EXPECT_TRUE(own_path(model));
    expect_equal(model, texts_for(model));
  }
}

TEST(SentencePieceWords, WhatIsNotSurelyEqualKeepsTheLibrary) {
  for (const Arguments& changes :
       std::vector<Arguments>{{{"model_type", "unigram"}},
                              {{"normalization_rule_name", "nmt_nfkc"}},
                              {{"remove_extra_whitespaces", "true"}},
                              {{"byte_fallback", "false"}},
                              {{"treat_whitespace_as_suffix", "true"}},
                              {{"user_defined_symbols", "<|user|>,ab"}}}) {
    const std::string model = train(changes);
    EXPECT_FALSE(own_path(model)) << changes.begin()->first;
    expect_equal(model, hostile());
  }
  const std::string across = train({{"split_by_whitespace", "false"}});
  EXPECT_FALSE(own_path(across));  // pieces with spaces in the middle
  expect_equal(across, hostile());
}

// Small alphabets with equal scores, where the merge order matters most.
TEST(SentencePieceWords, MadeUpModelsGiveTheLibrarysIds) {
  const std::string space = "\xE2\x96\x81";
  const std::vector<std::string> letters = {"a", "b", "\xC3\xA9", space};
  std::mt19937 random(5);
  int own = 0;
  for (int round = 0; round < 300; ++round) {
    SentencePieces parts;
    parts.adds_leading_space = random() % 2 == 0;
    parts.bos = parts.eos = -1;
    parts.unknown = 0;
    parts.pieces.push_back({"<unk>", 0, SentencePieces::kUnknown});
    for (int byte = 0; byte < 256; ++byte) {
      const char* const digits = "0123456789ABCDEF";
      parts.pieces.push_back({std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", 0,
                              SentencePieces::kByte});
    }
    std::set<std::string> known;
    const auto add = [&](const std::string& piece) {
      if (piece.empty() || !known.insert(piece).second) return;
      parts.pieces.push_back({piece, -static_cast<double>(random() % 6), SentencePieces::kNormal});
    };
    for (const std::string& letter : letters)
      if (random() % 20 != 0) add(letter);  // some characters of pieces are not pieces
    for (int i = 0; i < 14; ++i) {
      std::string piece;
      for (auto n = random() % 3; n > 0 && random() % 2 == 0; --n) piece += space;
      for (auto n = 1 + random() % 4; n > 0; --n) piece += letters[random() % 3];
      if (random() % 40 == 0) piece += space;
      add(piece);
    }
    const std::string model = serialize_sentence_pieces(parts);
    own += own_path(model) ? 1 : 0;
    std::vector<std::string> texts;
    const std::vector<std::string> characters = {"a", "a", "b", "\xC3\xA9", " ", "c", "\n"};
    for (int i = 0; i < 60; ++i) texts.push_back(random_text(random, characters, 60));
    expect_equal(model, texts);
  }
  EXPECT_GT(own, 100);
  EXPECT_LT(own, 300);
}

}  // namespace
}  // namespace trireme::test_sentencepiece_words
