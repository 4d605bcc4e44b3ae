// Grammar compilation on other threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "engine/core/error.h"
#include "serving/structured/grammar_compiler.h"
#include "tests/serving/structured/deep_grammar.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test_grammar_compiler {
namespace {

using namespace test;
using Kind = GrammarSource::Kind;

const char* const kHard = "(((((a{1000}){1000}){1000}){1000}){1000})";

struct RecordedOutcome {
  std::promise<std::string> outcome;  // the error, or "rule"
  GrammarCompiler::Done done() {
    return [this](const std::shared_ptr<const TextRule>& rule, const GrammarRefusal& refusal) {
      outcome.set_value(rule != nullptr ? "rule" : refusal.message);
    };
  }
};

bool always() { return true; }

TEST(GrammarCompiler, ReportsTheRuleOrWhyThereIsNone) {
  GrammarCompiler compiler(trie_of(byte_tokens()));
  RecordedOutcome hard, good, bad;
  compiler.compile("", {Kind::kRegex, kHard}, hard.done(), always);
  compiler.compile("", {Kind::kRegex, "a+"}, good.done(), always);
  compiler.compile("", {Kind::kRegex, "a("}, bad.done(), always);
  EXPECT_EQ(good.outcome.get_future().get(), "rule");
  EXPECT_NE(bad.outcome.get_future().get().find("unmatched ("), std::string::npos);
  EXPECT_NE(hard.outcome.get_future().get().find("make it simpler"), std::string::npos);
  // A compiled grammar is returned immediately.
  RecordedOutcome again;
  compiler.compile("", {Kind::kRegex, "a+"}, again.done(), always);
  EXPECT_EQ(again.outcome.get_future().wait_for(std::chrono::seconds(0)),
            std::future_status::ready);
}

TEST(GrammarCompiler, LeavesOutWhatNobodyWaitsFor) {
  GrammarCompiler compiler(trie_of(byte_tokens()), {.threads = 1});
  RecordedOutcome hard, last;
  std::atomic<bool> compiled{false};
  compiler.compile("", {Kind::kRegex, kHard}, hard.done(), always);
  compiler.compile(
      "", {Kind::kRegex, "b"},
      [&](const std::shared_ptr<const TextRule>&, const GrammarRefusal&) { compiled = true; },
      [] { return false; });
  compiler.compile("", {Kind::kRegex, "c"}, last.done(), always);
  EXPECT_EQ(last.outcome.get_future().get(), "rule");
  EXPECT_FALSE(compiled);
  EXPECT_NE(hard.outcome.get_future().get(), "rule");
}

// However many jobs a key has queued, the next key's job comes second.
TEST(GrammarCompiler, ServesKeysInTurn) {
  std::promise<void> begun, all_are_there;
  std::mutex mutex;
  std::vector<std::string> order;
  std::promise<void> ended;
  GrammarCompiler compiler(trie_of(byte_tokens()), {.threads = 1});
  const auto report_to = [&](const char* tenant) {
    return [&, tenant](const std::shared_ptr<const TextRule>&, const GrammarRefusal&) {
      const std::lock_guard lock(mutex);
      order.emplace_back(tenant);
      if (order.size() == 21) ended.set_value();
    };
  };
  compiler.compile(
      "a", {Kind::kRegex, "first"},
      [&](const std::shared_ptr<const TextRule>&, const GrammarRefusal&) {
        begun.set_value();
        all_are_there.get_future().get();
      },
      always);
  begun.get_future().get();
  for (int i = 0; i < 20; ++i)
    compiler.compile("a", {Kind::kRegex, concat("a", i)}, report_to("a"), always);
  compiler.compile("b", {Kind::kRegex, "b"}, report_to("b"), always);
  EXPECT_EQ(compiler.counts().waiting, 21);
  all_are_there.set_value();
  ended.get_future().get();
  EXPECT_EQ(std::ranges::find(order, "b") - order.begin(), 1);
}

// One of two threads stays free for other keys, while a key has its job on the other.
TEST(GrammarCompiler, LeavesAThreadToOtherKeys) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> of_a{0};
  GrammarCompiler compiler(trie_of(byte_tokens()));
  for (int i = 0; i < 4; ++i)
    compiler.compile(
        "a", {Kind::kRegex, concat("a", i)},
        [&](const std::shared_ptr<const TextRule>&, const GrammarRefusal&) {
          ++of_a;
          opened.wait();
        },
        always);
  RecordedOutcome other;
  compiler.compile("b", {Kind::kRegex, "b"}, other.done(), always);
  EXPECT_EQ(other.outcome.get_future().get(), "rule");
  EXPECT_LE(of_a, 1);
  gate.set_value();
}

TEST(GrammarCompiler, KeepsNothingOfOneKeyForAnother) {
  GrammarCompiler compiler(trie_of(byte_tokens()));
  RecordedOutcome first, again, other;
  compiler.compile("a", {Kind::kRegex, "x"}, first.done(), always);
  EXPECT_EQ(first.outcome.get_future().get(), "rule");
  const int64_t one = compiler.counts().live_bytes;
  EXPECT_GT(one, 0);
  compiler.compile("a", {Kind::kRegex, "x"}, again.done(), always);
  EXPECT_EQ(compiler.counts().live_bytes, one);
  compiler.compile("b", {Kind::kRegex, "x"}, other.done(), always);
  EXPECT_EQ(other.outcome.get_future().get(), "rule");
  EXPECT_EQ(compiler.counts().live_bytes, 2 * one);
}

// A suspended thread, as on a busy machine, does not use up its budget.
TEST(CompileBudget, CountsTheThreadsOwnTime) {
  CompileBudget budget({.time = std::chrono::milliseconds(20)});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(budget.out_of_time());
  while (!budget.out_of_time()) continue;
  EXPECT_THROW(for (int i = 0; i < 256; ++i) budget.check_time(), InputError);
}

// The compiled grammar, or the kind of refusal.
struct Compiled {
  std::shared_ptr<const TextRule> rule;
  GrammarRefusal refusal;
};

Compiled compiled(GrammarCompiler& compiler, const std::string& tenant, const std::string& regex) {
  std::promise<Compiled> outcome;
  compiler.compile(
      tenant, {Kind::kRegex, regex},
      [&](std::shared_ptr<const TextRule> rule, const GrammarRefusal& refusal) {
        outcome.set_value({std::move(rule), refusal});
      },
      always);
  return outcome.get_future().get();
}

TEST(GrammarCompiler, HoldsNoMoreThanItMay) {
  GrammarCompiler compiler(trie_of(byte_tokens()), {.live_bytes = 4 << 20});
  std::vector<std::shared_ptr<const TextRule>> used;
  // Grammars in use by one key: half of the budget.
  Compiled last;
  for (int i = 0; used.size() == static_cast<size_t>(i); ++i) {
    last = compiled(compiler, "a", concat("[a-z]{100}", i));
    if (last.rule != nullptr) used.push_back(last.rule);
    ASSERT_LE(compiler.counts().live_bytes, 2 << 20);
  }
  EXPECT_EQ(last.refusal.kind, GrammarRefusal::Kind::kShareIsFull);
  EXPECT_GT(used.size(), 5u);
  EXPECT_GT(compiler.counts().live_bytes, 1 << 20);
  // Another key has the other half; grammars not in use are evicted, cached or not.
  EXPECT_NE(compiled(compiler, "b", "[a-z]{100}b").rule, nullptr);
  used.pop_back();
  EXPECT_NE(compiled(compiler, "a", "[a-z]{100}c").rule, nullptr);
  used.clear();
  for (int i = 0; i < 100; ++i)
    ASSERT_NE(compiled(compiler, "a", concat("[a-z]{200}", i)).rule, nullptr) << i;
  EXPECT_LE(compiler.counts().live_bytes, 4 << 20);
}

// Where memory for masks is exhausted they are computed again, with the same result.
TEST(GrammarCompiler, MasksAreTheSameInLittleMemory) {
  const auto trie = trie_of(byte_tokens(kManyDeep));
  const auto free = CompiledGrammar::compile(kDeep, trie);
  // Memory for the states of one walk besides the prepared ones, but not for those of a whole text.
  const auto memory = std::make_shared<GrammarMemory>(2 * free->bytes());
  const auto tight = CompiledGrammar::compile(kDeep, trie, {}, {.memory = memory});
  std::mt19937 random(3);
  for (int text = 0; text < 20; ++text) {
    const auto one = free->begin({kEnd}, kManyTokens), other = tight->begin({kEnd}, kManyTokens);
    for (int n = 0; n < 200; ++n) {
      ASSERT_EQ(other->state(), one->state());
      ASSERT_TRUE(std::ranges::equal(one->mask(), other->mask())) << text << ", " << n;
      const std::vector<int32_t> ids = allowed(one->mask(), trie->ids());
      const int32_t id = ids[random() % ids.size()];
      if (id == kEnd) break;
      if (one->accept(id) != other->accept(id)) FAIL();
      if (one->state() == RuleReader::State::kEnded) break;
    }
  }
  EXPECT_GT(free->bytes(), memory->used());
}

}  // namespace
}  // namespace trireme::test_grammar_compiler
