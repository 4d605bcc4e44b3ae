// Text of token ids compared with the tokenizers' own libraries, at once and token by token
// (tests/golden/detokenized, by make_detokenized.py).
#include <gtest/gtest.h>

#include <numeric>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/support/detokenized.h"

namespace trireme::test_detokenizer {
namespace {

using nlohmann::json;
using test::Detokenized;

class Detokenization : public testing::TestWithParam<const char*> {};

TEST_P(Detokenization, GivesTheTextOfTheTokenizersLibrary) {
  const Detokenized golden = test::read_detokenized(GetParam());
  ASSERT_GE(golden.cases.size(), 100u);
  for (const Detokenized::Case& c : golden.cases) {
    EXPECT_EQ(golden.tokenizer->decode(c.ids), c.text) << json(c.ids);
    if (!c.marked) continue;
    EXPECT_EQ(golden.tokenizer->decode(c.ids, true), *c.marked) << json(c.ids);
  }
}

TEST_P(Detokenization, StreamsTheSameTextAndTakesNothingBack) {
  const Detokenized golden = test::read_detokenized(GetParam());
  for (const Detokenized::Case& c : golden.cases) {
    const auto detokenizer = golden.tokenizer->detokenizer(true);
    DetokenizedText out;
    for (const int32_t id : c.ids) {
      const size_t before = out.text.size();
      detokenizer->push(id, !golden.tokenizer->is_control(id), out);
      EXPECT_EQ(find_invalid_utf8(out.text.substr(before)), out.text.size() - before);
      EXPECT_EQ(std::accumulate(out.shares.begin(), out.shares.end(), size_t{0}), out.text.size());
      EXPECT_LE(out.shares.size(), c.ids.size());
    }
    const bool partial = detokenizer->has_partial();
    detokenizer->finish(out);
    EXPECT_EQ(out.text, c.text) << json(c.ids);
    EXPECT_EQ(out.shares.size(), c.ids.size()) << json(c.ids);
    const size_t shared = std::accumulate(out.shares.begin(), out.shares.end(), size_t{0});
    EXPECT_TRUE(shared == out.text.size() || (partial && shared < out.text.size())) << json(c.ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Detokenization, testing::ValuesIn(test::kDetokenized),
                         [](const auto& kind) { return std::string(kind.param); });

json tokenizer_with(json decoder) {
  return {
      {"model",
       {{"type", "BPE"},
        {"vocab",
         {{"\u2581a", 0}, {"<0x0A>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}, {"b", 4}, {"<0x41>", 5}}},
        {"merges", json::array()}}},
      {"decoder", std::move(decoder)}};
}

std::unique_ptr<Tokenizer> decoding(json decoder) {
  return parse_tokenizer_json(tokenizer_with(std::move(decoder)).dump(), "", "tokenizer.json");
}

json byte_fallback() {
  return {{"type", "Sequence"},
          {"decoders",
           {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
            {{"type", "ByteFallback"}},
            {{"type", "Fuse"}},
            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
}

// A run of byte tokens becomes text when the next token ends it, and each token gets its character.
TEST(Detokenizer, HoldsARunOfByteTokensUntilItIsDecided) {
  const auto tokenizer = decoding(byte_fallback());
  const auto detokenizer = tokenizer->detokenizer(true);
  DetokenizedText out;
  for (const int32_t id : {0, 1, 2, 3}) detokenizer->push(id, true, out);
  EXPECT_EQ(out.text, "a");
  EXPECT_EQ(out.shares, (std::vector<size_t>{1}));
  detokenizer->push(4, false, out);  // held: the run continues
  EXPECT_EQ(out.shares.size(), 1u);
  detokenizer->push(4, true, out);
  EXPECT_EQ(out.text, "a\n\u00e9b");
  EXPECT_EQ(out.shares, (std::vector<size_t>{1, 1, 0, 2, 0, 1}));
}

// Invalid UTF-8 is recognized at the first byte that does not continue a character.
TEST(Detokenizer, AnInvalidRunIsNotHeldLongerThanItMust) {
  const auto tokenizer = decoding(byte_fallback());
  const auto detokenizer = tokenizer->detokenizer(true);
  DetokenizedText out;
  for (const int32_t id : {1, 2}) detokenizer->push(id, true, out);
  EXPECT_EQ(out.text, "");
  detokenizer->push(5, true, out);
  EXPECT_EQ(out.text, "\uFFFD\uFFFD\uFFFD");
  detokenizer->push(1, true, out);
  EXPECT_EQ(out.text, "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(out.shares, (std::vector<size_t>{3, 3, 3, 3}));
  detokenizer->push(4, true, out);
  detokenizer->push(1, true, out);
  detokenizer->finish(out);
  EXPECT_EQ(out.text, "\uFFFD\uFFFD\uFFFD\uFFFDb\n");
}

TEST(Detokenizer, ATextInTheMiddleKeepsItsFirstSpace) {
  for (const json& decoder : {byte_fallback(), json{{"type", "Metaspace"}}}) {
    const auto tokenizer = decoding(decoder);
    for (const bool at_start : {false, true}) {
      const auto detokenizer = tokenizer->detokenizer(at_start);
      DetokenizedText out;
      detokenizer->push(0, true, out);
      detokenizer->finish(out);
      EXPECT_EQ(out.text, at_start ? "a" : " a") << decoder;
    }
  }
  EXPECT_EQ(decoding(nullptr)->decode(std::vector<int32_t>{4, 5}), "b <0x41>");
}

TEST(Detokenizer, KnowsTheBytesOfATokenBehindOthers) {
  const auto bytes = [](const Tokenizer& tokenizer, int32_t id) {
    std::string out;
    tokenizer.append_bytes(id, out);
    return out;
  };
  EXPECT_EQ(bytes(*decoding(byte_fallback()), 0), " a");
  EXPECT_EQ(bytes(*decoding(byte_fallback()), 2), "\xC3");
  EXPECT_EQ(bytes(*decoding(json{{"type", "Metaspace"}}), 0), " a");
  EXPECT_EQ(bytes(*decoding(nullptr), 4), " b");
}

TEST(Detokenizer, RefusesDecodersThatItCannotFollow) {
  const auto sequence = [](json parts) {
    return json{{"type", "Sequence"}, {"decoders", std::move(parts)}};
  };
  const json fuse = {{"type", "Fuse"}}, fallback = {{"type", "ByteFallback"}};
  const json strip = {{"type", "Strip"}, {"content", "  "}, {"start", 1}, {"stop", 0}};
  json many = json::array(), replace = {{"type", "Replace"}, {"content", ""}};
  for (int i = 0; i < 40; ++i) many.push_back(json{{"type", "Metaspace"}});
  const json longer = {
      {"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", std::string(16, 'b')}};
  replace["pattern"] = {{"String", std::string(300, 'a')}};
  const std::vector<std::pair<json, const char*>> cases = {
      {sequence({fuse, json{{"type", "ByteLevel"}}}), "ByteLevel after a Fuse"},
      {sequence({fuse, fallback}), "ByteFallback after a Fuse"},
      {sequence({fallback, fallback}), "ByteFallback after another"},
      {strip, "not one character"},
      {sequence(many), "more than 32 parts"},
      {sequence({fuse, replace}), "texts of 300 and 0 bytes"},
      {sequence(json(7, longer)), "more than 1048576 bytes of text"},
      {json{{"type", "WordPiece"}}, "WordPiece is not supported"}};
  for (const auto& [decoder, reason] : cases) {
    try {
      decoding(decoder);
      ADD_FAILURE() << decoder;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace trireme::test_detokenizer
