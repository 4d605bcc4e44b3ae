#include <gtest/gtest.h>

#include "serving/api/token_name.h"

namespace trireme::test_token_name {
namespace {

TEST(TokenName, IsTheShareOfTheTextOrTheBytes) {
  const auto name = [](const char* text, const char* bytes) {
    const TokenName named = token_name(TokenText{.id = 1, .text = text, .bytes = bytes});
    return std::pair(named.name, named.bytes);
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(name("Hi", " Hi"), Pair("Hi", "Hi"));         // at the start of a text
  EXPECT_EQ(name("he", "hello"), Pair("he", "he"));       // truncated before a stop string
  EXPECT_EQ(name("", ""), Pair("", ""));                  // hidden
  EXPECT_EQ(name("\xEF\xBF\xBDx", "x"), Pair("x", "x"));  // after an incomplete character
  EXPECT_EQ(name("\xC3\xA9", "\xA9"), Pair("bytes:\\xa9", "\xA9"));
  EXPECT_EQ(name("", " \xC3"), Pair("bytes:\\x20\\xc3", " \xC3"));
}

}  // namespace
}  // namespace trireme::test_token_name
