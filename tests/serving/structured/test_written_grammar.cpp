#include <gtest/gtest.h>

#include "serving/structured/written_grammar.h"
#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_written_grammar {
namespace {

using namespace test;

TEST(WrittenGrammar, IsReadAsLlamaCppWritesIt) {
  expect(Kind::kGrammar,
         "# a sum\nroot ::= term ([-+] term)*\nterm ::= [0-9]{1,3} | \"(\" root \")\"\n",
         {"1", "12+3", "(1-2)+3", "((7))"}, {"", "1+", "1234", "(1", "1)"});
  expect(Kind::kGrammar,
         "root ::= \"\\\"\" [^\"\\n]* \"\\\"\" tail?\ntail ::=\n  \"\\x41\" |\n  \"é\"",
         {"\"a b\"", "\"\"A", "\"\"é"}, {"\"\n\"", "\"\"B"});
  const auto why = [](const char* text) { return refused(Kind::kGrammar, text); };
  EXPECT_EQ(why("root ::= a"), "grammar: the rule a is not defined");
  EXPECT_EQ(why("a ::= \"b\""), "grammar: there is no rule root");
  EXPECT_EQ(why("root ::= \"a\n\""), "grammar, line 1: a line ends within a literal or a class");
  EXPECT_NE(why("root ::= root \"a\" | \"b\"").find("left recursion"), std::string::npos);
  EXPECT_NE(why("root ::= a \"x\"\na ::= \"y\"? root | \"z\"").find("left recursion"),
            std::string::npos);
  EXPECT_EQ(why("root ::= \"a\" root"), "no text satisfies the constraint");
  EXPECT_NE(why("root ::= \"a\"\nroot ::= \"b\"").find("twice"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_written_grammar
