#include <gtest/gtest.h>

#include "serving/structured/regex_grammar.h"
#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_regex_grammar {
namespace {

using namespace test;

TEST(Regex, IsASubsetThatSaysWhatItLacks) {
  expect(Kind::kRegex, R"(^[^\d\s-]{2}(?:\x41|\u{1F600})?$)", {"ab", "éA", "ab\xF0\x9F\x98\x80"},
         {"a1", "a-", "a", "abAA", "\xC3("});
  expect(Kind::kRegex, "(a+)+$", {"a", "aaaa"}, {"", "aab"});
  // Whitespace of other dialects matches neither \\S nor [^\\s] nor \\s.
  for (const char* expression : {"\\S", "[^\\s]", "\\s", "[^\\S]"})
    expect(Kind::kRegex, expression, {}, {"\xC2\xA0", "\xC2\x85", "\xE3\x80\x80"});
  const auto why = [](const char* text) { return refused(Kind::kRegex, text); };
  // Syntax that differs between dialects.
  EXPECT_NE(why("a{,3}").find("write {0,n}"), std::string::npos);
  for (const char* named : {"[[:alpha:]]+", "[^[:space:]]", "[a[=e=]]"})
    EXPECT_NE(why(named).find("[:name:]"), std::string::npos) << named;
  expect(Kind::kRegex, "a{,}|x{|[[:]", {"a{,}", "x{", "[", ":"}, {"a", "]"});
  EXPECT_NE(why("a{2}{3}").find("repetition of a repetition"), std::string::npos);
  EXPECT_EQ(why("foo**"),
            "regular expression, character 5: a repetition of a repetition; put the inner one into "
            "parentheses");
  EXPECT_NE(why("(a)\\1").find("backreferences"), std::string::npos);
  EXPECT_NE(why("(?!a)").find("lookaround"), std::string::npos);
  EXPECT_NE(why("(?<=a)b").find("lookaround"), std::string::npos);
  EXPECT_NE(why("a\\b").find("boundary"), std::string::npos);
  EXPECT_NE(why("(a").find("unmatched ("), std::string::npos);
  EXPECT_NE(why("a)").find("unmatched )"), std::string::npos);
  EXPECT_NE(why("[a").find("unexpected end"), std::string::npos);
  EXPECT_NE(why("[z-a]").find("wrong order"), std::string::npos);
  EXPECT_NE(why("a{3,2}").find("above its maximum"), std::string::npos);
  EXPECT_NE(why("*").find("nothing"), std::string::npos);
  EXPECT_NE(why("\xFF").find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_regex_grammar
