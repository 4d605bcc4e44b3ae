// Byte tokenizer, SentencePiece round trips, streaming, hostile models.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/streamed.h"

namespace trireme::test_tokenizer {
namespace {

using test::streamed;

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), 0u);
  EXPECT_EQ(find_invalid_utf8("plain text that is longer than eight bytes"), 42u);
  EXPECT_EQ(find_invalid_utf8("a\u00e4\u20ac\U0001F600"), 10u);
  const std::vector<std::string> bad = {"\x80",
                                        "\xC0\xAF",
                                        "\xC1\xBF",
                                        "\xE0\x9F\xBF",
                                        "\xED\xA0\x80",
                                        "\xF0\x8F\xBF\xBF",
                                        "\xF5\x80\x80\x80",
                                        "\xF4\x90\x80\x80",
                                        "\xE2\x82",
                                        "\xFF"};
  for (const std::string& bytes : bad) {
    EXPECT_EQ(find_invalid_utf8("0123456789" + bytes), 10u) << testing::PrintToString(bytes);
    EXPECT_EQ(find_invalid_utf8("x" + bytes + "yyyyyyyyy"), 1u) << testing::PrintToString(bytes);
  }
}

TEST(Utf8, TakesWhatIsComplete) {
  std::string pending = "ab\xE2\x82";
  EXPECT_EQ(take_complete_utf8(pending), "ab");
  EXPECT_EQ(pending, "\xE2\x82");
  pending += "\xAC!";
  EXPECT_EQ(take_complete_utf8(pending), "\u20ac!");
  EXPECT_EQ(pending, "");
  pending = "a\xFF\xE2q\xF0\x9F";
  EXPECT_EQ(take_complete_utf8(pending), concat("a", kReplacement, kReplacement, "q"));
  EXPECT_EQ(pending, "\xF0\x9F");
}

TEST(Utf8, RepairsEachByteOrMaximalParts) {
  const auto marks = [](int count, const std::string& rest) {
    std::string out;
    for (int i = 0; i < count; ++i) out += kReplacement;
    return out + rest;
  };
  struct Case {
    std::string bytes;
    int parts;
    std::string rest = "";
  };
  // Results of Python's and Rust's lossy decoding.
  const std::vector<Case> cases = {{"\xE2\x82", 1},
                                   {"\xE2\x82z", 1, "z"},
                                   {"\xF0\x9F\x98z", 1, "z"},
                                   {"\xE0\x80z", 2, "z"},
                                   {"\xED\xA0\x80", 3},
                                   {"\xF4\x90\x80\x80", 4},
                                   {"\xC3\xC3\xA9", 1, "\xC3\xA9"},
                                   {"\xFF\xFE", 2},
                                   {"\xF0\x9F\xE2", 2}};
  for (const Case& c : cases) {
    EXPECT_EQ(repaired_utf8(c.bytes, Utf8Repair::kMaximalPart), marks(c.parts, c.rest))
        << testing::PrintToString(c.bytes);
    const auto bytes = static_cast<int>(c.bytes.size() - c.rest.size());
    EXPECT_EQ(repaired_utf8(c.bytes, Utf8Repair::kEachByte), marks(bytes, c.rest))
        << testing::PrintToString(c.bytes);
  }
}

TEST(ByteTokenizer, EveryByteIsItsOwnId) {
  const auto tokenizer = load_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->eod_id(), 256);
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  std::vector<int32_t> ids = tokenizer->encode(all);
  for (int32_t i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  ids.push_back(256);
  std::string bytes;
  for (const int32_t id : ids) tokenizer->append_bytes(id, bytes);
  EXPECT_EQ(bytes, all);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{257}), Error);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{-1}), Error);
}

TEST(ByteTokenizer, StreamYieldsWholeCharacters) {
  const auto tokenizer = make_byte_tokenizer();
  const std::string text = "a\u00e4\u20ac\U0001F600z";
  EXPECT_EQ(streamed(*tokenizer, tokenizer->encode(text)), text);
  EXPECT_EQ(streamed(*tokenizer, {0xE2, 0x82}), kReplacement);
  EXPECT_EQ(streamed(*tokenizer, {0xE2, 'a', 0xFF, 256}), concat(kReplacement, "a", kReplacement));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{256, 'a'}, true), "<|endoftext|>a");
  const auto detokenizer = tokenizer->detokenizer();
  DetokenizedText out;
  for (const int32_t byte : {0xF0, 0x9F, 0x98}) {
    detokenizer->push(byte, true, out);
    EXPECT_TRUE(out.text.empty() && detokenizer->has_partial());
  }
  detokenizer->push(0x80, true, out);
  EXPECT_EQ(out.text, "\U0001F600");
  EXPECT_FALSE(detokenizer->has_partial());
}

TEST(LoadTokenizer, SaysWhatIsAccepted) {
  for (const std::string spec : {"meta-llama/Llama-2-7b", "gpt2", "", "tokenizer.txt"}) {
    try {
      load_tokenizer(spec);
      FAIL() << spec;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("\"byte\", the path"), std::string::npos);
    }
  }
  EXPECT_THROW(load_tokenizer("/nonexistent/x.model"), InputError);
  EXPECT_THROW(load_tokenizer("/nonexistent/tokenizer.json"), InputError);
}

}  // namespace
}  // namespace trireme::test_tokenizer
