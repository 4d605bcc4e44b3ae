// Unicode normal forms: the standard's own examples (annex 15), and texts designed to take long.
#include <gtest/gtest.h>

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
