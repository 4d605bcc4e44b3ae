#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/core/utf8.h"
#include "serving/text/text_stream.h"
#include "tests/support/detokenized.h"

namespace trireme::test_text_stream {
namespace {

struct Streamed {
  std::string text;
  std::vector<TokenText> tokens;
  std::vector<std::string> pieces;
  bool stopped = false;
};

// Byte tokenizer: one token per byte.
Streamed stream(const std::string& bytes, const TextStreamOptions& options) {
  const auto tokenizer = make_byte_tokenizer();
  TextStream stream(*tokenizer, options);
  Streamed out;
  const auto keep = [&](TextDelta& delta) {
    EXPECT_EQ(find_invalid_utf8(delta.text), delta.text.size());
    out.text += delta.text;
    out.pieces.push_back(delta.text);
    for (TokenText& token : delta.tokens) out.tokens.push_back(std::move(token));
  };
  for (const char byte : bytes) {
    TextDelta delta;
    stream.push(static_cast<unsigned char>(byte), TokenRole::kText, delta);
    keep(delta);
    if (stream.stopped()) break;
  }
  out.stopped = stream.stopped();
  if (!out.stopped) {
    TextDelta delta;
    stream.finish(delta);
    keep(delta);
  }
  return out;
}

std::string shares(const Streamed& streamed) {
  std::string out;
  for (const TokenText& token : streamed.tokens) out += token.text;
  return out;
}

TEST(TextStream, HoldsBackCharactersUntilTheyAreWhole) {
  const Streamed s = stream("a\xC3\xA9\xE2\x82\xAC!", {.report_tokens = true});
  EXPECT_EQ(s.pieces,
            (std::vector<std::string>{"a", "", "\xC3\xA9", "", "", "\xE2\x82\xAC", "!", ""}));
  ASSERT_EQ(s.tokens.size(), 7u);
  EXPECT_EQ(shares(s), s.text);
  EXPECT_EQ(s.tokens[1].text, "");
  EXPECT_EQ(s.tokens[1].bytes, "\xC3");
  EXPECT_EQ(s.tokens[2].text, "\xC3\xA9");
  EXPECT_EQ(s.tokens[2].bytes, "\xA9");
  EXPECT_EQ(s.tokens[2].offset, 1);  // in characters
  EXPECT_EQ(s.tokens[3].offset, 2);
  EXPECT_EQ(s.tokens[6].offset, 3);
}

TEST(TextStream, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(stream("a\xFF"
                   "b",
                   {})
                .text,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stream("a\xE2\x82", {}).text, "a\xEF\xBF\xBD");  // the tail, once
  const Streamed s = stream("\xE2\x82", {.report_tokens = true});
  EXPECT_EQ(shares(s), s.text);
  EXPECT_EQ(s.tokens.size(), 2u);
}

TEST(TextStream, NeverReportsThePrefixOfAStopString) {
  const Streamed s = stream("one STOP two", {.stops = {"STOP"}, .report_tokens = true});
  EXPECT_TRUE(s.stopped);
  EXPECT_EQ(s.text, "one ");
  EXPECT_EQ(shares(s), "one ");
  EXPECT_EQ(s.tokens.size(), 4u);
  for (const std::string& piece : s.pieces) EXPECT_EQ(piece.find('S'), std::string::npos);
  // Held-back text is emitted when it does not become a stop string.
  EXPECT_EQ(stream("STO STOQ", {.stops = {"STOP"}}).text, "STO STOQ");
  EXPECT_EQ(stream("STO", {.stops = {"STOP"}}).text, "STO");
}

TEST(TextStream, MayKeepTheStopString) {
  const Streamed s =
      stream("one STOP two", {.stops = {"STOP"}, .include_stop = true, .report_tokens = true});
  EXPECT_EQ(s.text, "one STOP");
  EXPECT_EQ(shares(s), s.text);
}

TEST(TextStream, EndsAtTheStopStringThatIsCompleteFirst) {
  EXPECT_EQ(stream("abcde", {.stops = {"abcde", "cd"}}).text, "ab");
  EXPECT_EQ(stream("xabc", {.stops = {"bc", "abc"}}).text, "x");  // both end there: the longer one
  EXPECT_EQ(stream("aaab", {.stops = {"aab"}}).text, "a");        // overlaps itself
}

TEST(TextStream, IgnoresStopStringsInTheFirstTokens) {
  EXPECT_EQ(stream("xSxS", {.stops = {"S"}, .min_tokens = 2}).text, "xSx");
}

TEST(TextStream, ReportsNothingOfEndTokensUnlessAsked) {
  const auto tokenizer = make_byte_tokenizer();
  for (const bool include : {false, true}) {
    TextStream stream(*tokenizer, {.include_stop = include});
    TextDelta delta;
    stream.push('a', TokenRole::kText, delta);
    stream.push('.', TokenRole::kEnd, delta);
    stream.finish(delta);
    EXPECT_EQ(delta.text, include ? "a." : "a");
  }
}

TEST(TextStream, WritesSpecialTokensOnlyIfAsked) {
  const auto tokenizer = make_byte_tokenizer();
  for (const bool show : {false, true}) {
    TextStream stream(*tokenizer, {.show_special = show});
    TextDelta delta;
    stream.push(256, TokenRole::kText, delta);
    stream.push('a', TokenRole::kText, delta);
    EXPECT_EQ(delta.text, show ? "<|endoftext|>a" : "a");
  }
}

TEST(TextStream, WritesSomeSpecialTokensInAnyCase) {
  const auto tokenizer = make_byte_tokenizer();
  const auto written = [&](std::vector<int32_t> shown, TokenRole role) {
    TextStream stream(*tokenizer, {.shown = std::move(shown)});
    TextDelta delta;
    stream.push('a', TokenRole::kText, delta);
    stream.push(256, role, delta);
    stream.finish(delta);
    return delta.text;
  };
  EXPECT_EQ(written({-1, 256}, TokenRole::kText), "a<|endoftext|>");
  EXPECT_EQ(written({-1, 'a'}, TokenRole::kText), "a");
  EXPECT_EQ(written({256}, TokenRole::kEnd), "a");
}

TEST(TextStream, StopsInTheTextOnlyAndNotInThePrompt) {
  const auto tokenizer = make_byte_tokenizer();
  TextStream stream(*tokenizer, {.stops = {"ab"}});
  TextDelta delta;
  for (const char c : {'a', 'b', 'a'}) stream.push(c, TokenRole::kPrompt, delta);
  stream.push('b', TokenRole::kText, delta);  // the stop string would start in the prompt
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(delta.text, "abab");
  stream.push('a', TokenRole::kText, delta);
  stream.push('b', TokenRole::kText, delta);
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(delta.text, "abab");
}

// Straightforward implementation: the first end of a stop string in the whole text.
std::string expected(const std::string& text, const TextStreamOptions& options) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : options.stops)
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, options.include_stop ? end : end - longest);
  }
  return text;
}

TEST(TextStream, GivesTheSameTextAsAllAtOnce) {
  std::mt19937 random(7);
  const std::vector<std::string> alphabet = {"a",    "b",    "\xC3", "\xA9",
                                             "\xE2", "\x82", "\xAC", "\xF0"};
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) bytes += alphabet[random() % alphabet.size()];
    TextStreamOptions options{.include_stop = random() % 2 == 0, .report_tokens = true};
    const std::vector<std::string> stops = {"ab", "aba", "\xC3\xA9", "b\xE2\x82\xAC", "aaaa", "bb"};
    for (size_t i = random() % 4; i > 0; --i)
      options.stops.push_back(stops[random() % stops.size()]);
    const Streamed s = stream(bytes, options);
    ASSERT_EQ(s.text, expected(repaired_utf8(bytes, Utf8Repair::kMaximalPart), options)) << round;
    ASSERT_EQ(shares(s), s.text) << round;
    int64_t offset = 0;
    for (const TokenText& token : s.tokens) {
      ASSERT_EQ(token.offset, offset) << round;
      offset += count_characters(token.text);
    }
    stopped += s.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 2900);
}

// Streams ids and checks their parts of the text.
std::string stream_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                       TextStreamOptions options, std::vector<TokenText>& tokens) {
  options.report_tokens = true;
  options.at_start = true;
  TextStream stream(tokenizer, std::move(options));
  TextDelta delta;
  for (size_t i = 0; i < ids.size() && !stream.stopped(); ++i)
    stream.push(ids[i], TokenRole::kText, delta);
  if (!stream.stopped()) stream.finish(delta);
  tokens = delta.tokens;
  std::string shares;
  for (const TokenText& token : tokens) {
    EXPECT_EQ(token.offset, count_characters(shares));
    shares += token.text;
  }
  EXPECT_EQ(shares, delta.text);
  EXPECT_TRUE(stream.stopped() || tokens.size() == ids.size());
  return delta.text;
}

TEST(TextStream, GivesTheSameTextAsDecodingTheWhole) {
  std::mt19937 random(9);
  const std::vector<std::string> stops = {"a", "b a", "\n", "\u20ac", "\uFFFD\uFFFD", " ", "ab"};
  int stopped = 0;
  for (const char* name : test::kDetokenized) {
    const test::Detokenized golden = test::read_detokenized(name);
    for (const test::Detokenized::Case& c : golden.cases) {
      TextStreamOptions options{.include_stop = random() % 2 == 0};
      for (size_t i = random() % 3; i > 0; --i)
        options.stops.push_back(stops[random() % stops.size()]);
      std::vector<TokenText> tokens;
      const std::string text = stream_ids(*golden.tokenizer, c.ids, options, tokens);
      ASSERT_EQ(text, expected(c.text, options)) << name << " " << c.text;
      stopped += text != c.text ? 1 : 0;
      if (!c.marked) continue;
      options.show_special = true;
      ASSERT_EQ(stream_ids(*golden.tokenizer, c.ids, options, tokens), expected(*c.marked, options))
          << name << " " << *c.marked;
    }
  }
  EXPECT_GT(stopped, 300);
}

// Whether byte tokens are text is known when their run ends: a stop string in them counts from then
// on.
TEST(TextStream, EndsAtAStopStringOfByteTokens) {
  const test::Detokenized golden = test::read_detokenized("llama2");
  const Tokenizer& tokenizer = *golden.tokenizer;
  const int32_t b = tokenizer.find("b"), line = tokenizer.find("<0x0A>");
  std::vector<TokenText> tokens;
  EXPECT_EQ(stream_ids(tokenizer, {b, line, b, b}, {}, tokens), "b\nbb");
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokens[1].text, "\n");
  EXPECT_EQ(tokens[1].bytes, "\n");
  EXPECT_EQ(tokens[1].offset, 1);
  for (const auto& ids : {std::vector<int32_t>{b, line, b}, {b, line}}) {
    TextStream stream(tokenizer, {.stops = {"\n"}, .at_start = true, .report_tokens = true});
    TextDelta delta;
    for (const int32_t id : ids) {
      EXPECT_FALSE(stream.stopped());
      stream.push(id, TokenRole::kText, delta);
    }
    if (ids.size() == 2) stream.finish(delta);  // the run ends with the text
    EXPECT_TRUE(stream.stopped());
    EXPECT_EQ(delta.text, "b");
    EXPECT_EQ(delta.tokens.size(), 1u);
  }
  // The position of the token counts, not the time at which its text is known.
  EXPECT_EQ(stream_ids(tokenizer, {b, line, b, line}, {.stops = {"\n"}, .min_tokens = 2}, tokens),
            "b\nb");
}

TEST(TextStream, ASpecialTokenThatIsWrittenBeginsTheText) {
  const test::Detokenized golden = test::read_detokenized("llama2");
  const Tokenizer& tokenizer = *golden.tokenizer;
  const std::vector<int32_t> ids = {tokenizer.bos_id(), tokenizer.find("\u2581a")};
  std::vector<TokenText> tokens;
  EXPECT_EQ(stream_ids(tokenizer, ids, {}, tokens), "a");
  EXPECT_EQ(tokens[1].bytes, "a");
  EXPECT_EQ(stream_ids(tokenizer, ids, {.show_special = true}, tokens), "<s> a");
  EXPECT_EQ(tokens[1].bytes, " a");
}

}  // namespace
}  // namespace trireme::test_text_stream
