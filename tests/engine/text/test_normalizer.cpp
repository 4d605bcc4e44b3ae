#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/text/normalizer.h"

namespace trireme::test_normalizer {
namespace {

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

}  // namespace
}  // namespace trireme::test_normalizer
