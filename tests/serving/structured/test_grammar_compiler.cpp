// Grammars that are compiled on other threads.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "serving/structured/grammar_compiler.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test_grammar_compiler {
namespace {

using namespace test;
using Kind = GrammarSource::Kind;

const char* const kHard = "(((((a{1000}){1000}){1000}){1000}){1000})";

struct Answer {
  std::promise<std::string> told;  // the error, or "rule"
  GrammarCompiler::Done done() {
    return [this](const std::shared_ptr<const TextRule>& rule, const std::string& error) {
      told.set_value(rule != nullptr ? "rule" : error);
    };
  }
};

bool always() { return true; }

TEST(GrammarCompiler, TellsOfTheRuleOrWhyThereIsNone) {
  GrammarCompiler compiler(trie_of(byte_tokens()));
  Answer hard, good, bad;
  compiler.compile({Kind::kRegex, kHard}, hard.done(), always);
  compiler.compile({Kind::kRegex, "a+"}, good.done(), always);
  compiler.compile({Kind::kRegex, "a("}, bad.done(), always);
  EXPECT_EQ(good.told.get_future().get(), "rule");
  EXPECT_NE(bad.told.get_future().get().find("( without"), std::string::npos);
  EXPECT_NE(hard.told.get_future().get().find("make it simpler"), std::string::npos);
  // What has been compiled is known at once.
  Answer again;
  compiler.compile({Kind::kRegex, "a+"}, again.done(), always);
  EXPECT_EQ(again.told.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

TEST(GrammarCompiler, LeavesOutWhatNobodyWaitsFor) {
  GrammarCompiler compiler(trie_of(byte_tokens()), {}, 1);
  Answer hard, last;
  std::atomic<bool> compiled{false};
  compiler.compile({Kind::kRegex, kHard}, hard.done(), always);
  compiler.compile(
      {Kind::kRegex, "b"},
      [&](const std::shared_ptr<const TextRule>&, const std::string&) { compiled = true; },
      [] { return false; });
  compiler.compile({Kind::kRegex, "c"}, last.done(), always);
  EXPECT_EQ(last.told.get_future().get(), "rule");
  EXPECT_FALSE(compiled);
  EXPECT_NE(hard.told.get_future().get(), "rule");
}

}  // namespace
}  // namespace trireme::test_grammar_compiler
