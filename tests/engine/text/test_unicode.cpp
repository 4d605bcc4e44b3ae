// Unicode normal forms: the standard's own examples (annex 15), and texts designed to take long.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/text/normalizer.h"
#include "engine/text/unicode.h"

namespace trireme::test_unicode {
namespace {

struct Example {
  const char *text, *nfd, *nfc, *nfkd, *nfkc;
};

TEST(Normalize, GivesTheStandardsForms) {
  const Example examples[] = {
      {"A\u030A", "A\u030A", "\u00C5", "A\u030A", "\u00C5"},
      {"\u212B", "A\u030A", "\u00C5", "A\u030A", "\u00C5"},
      {"\u1E69", "s\u0323\u0307", "\u1E69", "s\u0323\u0307", "\u1E69"},
      {"s\u0307\u0323", "s\u0323\u0307", "\u1E69", "s\u0323\u0307", "\u1E69"},
      {"\u1E0B\u0323", "d\u0323\u0307", "\u1E0D\u0307", "d\u0323\u0307", "\u1E0D\u0307"},
      {"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"},
      {"\uFB01", "\uFB01", "\uFB01", "fi", "fi"},
      {"2\u2075", "2\u2075", "2\u2075", "25", "25"},
      {"\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E9B\u0323", "s\u0323\u0307", "\u1E69"},
      {"\uAC01", "\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8", "\uAC01"},
      {"\u1100\u1161\u11A8", "\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8", "\uAC01"}};
  for (const Example& e : examples) {
    EXPECT_EQ(normalize(e.text, NormalForm::kNfd), e.nfd) << e.text;
    EXPECT_EQ(normalize(e.text, NormalForm::kNfc), e.nfc) << e.text;
    EXPECT_EQ(normalize(e.text, NormalForm::kNfkd), e.nfkd) << e.text;
    EXPECT_EQ(normalize(e.text, NormalForm::kNfkc), e.nfkc) << e.text;
  }
}

// Time is linear in the text: quadratic time in a run of marks would not finish. A text shrinks by
// no more than the declared factor, from which tokenizers derive the minimum number of tokens.
TEST(Normalizer, ShortensTextsByNoMoreThanItSays) {
  const auto check = [](const Normalizer& normalizer, const std::string& text) {
    ASSERT_GE(std::ssize(normalizer.apply(text)) * normalizer.max_shrinking(), std::ssize(text))
        << text;
  };
  const nlohmann::json nfc = {{"type", "NFC"}};
  const Normalizer composes(nfc, "test");
  for (int c = 0x80; c < 0x110000; ++c) {
    const auto byte = [&](int shift, int first) {
      return static_cast<char>(first | (c >> shift & (first == 0x80 ? 0x3F : 0xFF)));
    };
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c < 0x800)
      check(composes, {byte(6, 0xC0), byte(0, 0x80)});
    else if (c < 0x10000)
      check(composes, {byte(12, 0xE0), byte(6, 0x80), byte(0, 0x80)});
    else
      check(composes, {byte(18, 0xF0), byte(12, 0x80), byte(6, 0x80), byte(0, 0x80)});
  }
  for (const char* text : {"\u1112\u1161\u11AB", "\u212A\u0301"}) check(composes, text);
  check(Normalizer({{"type", "Prepend"}, {"prepend", "_"}}, "test"), "a b");
  const auto replace = [](const char* from, const char* to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  check(Normalizer(replace(" ", "_"), "test"), "a b  c");
  const auto shrinking = [](const nlohmann::json& json) {
    return Normalizer(json, "test").max_shrinking();
  };
  EXPECT_EQ(shrinking(nullptr), 1);
  EXPECT_EQ(shrinking(replace("  ", "_")), 0);
  EXPECT_EQ(shrinking({{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "___"}}),
            0);
  EXPECT_EQ(shrinking({{"type", "Strip"}}), 0);
  EXPECT_EQ(shrinking({{"type", "Sequence"}, {"normalizers", {nfc, {{"type", "Strip"}}}}}), 0);
  EXPECT_EQ(shrinking({{"type", "Sequence"}, {"normalizers", {{{"type", "Strip"}}, nfc}}}), 0);
}

TEST(Normalize, OrdersAMillionMarks) {
  std::string text = "a", below, above;
  for (int i = 0; i < 500000; ++i) {
    text += "\u0301\u0323";
    below += "\u0323";
    above += "\u0301";
  }
  EXPECT_TRUE(normalize(text, NormalForm::kNfd) == "a" + below + above);
}

}  // namespace
}  // namespace trireme::test_unicode
