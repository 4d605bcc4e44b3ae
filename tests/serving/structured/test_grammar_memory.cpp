// Grammar memory budget: tenant shares and the order of eviction.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/core/heap_trim.h"
#include "serving/structured/grammar_memory.h"
#include "tests/serving/structured/vocabulary.h"
#include "tests/support/sanitized.h"

namespace trireme::test_grammar_memory {
namespace {

using ChargeResult = GrammarMemory::ChargeResult;

// Budget of 100 bytes with cached, unused grammars that may be evicted.
class Budget {
 public:
  Budget() {
    memory->set_evict([this](const std::string* tenant) {
      const auto at = tenant != nullptr ? kept.find(*tenant) : kept.begin();
      if (at == kept.end()) return false;
      memory->release(at->first, at->second);
      kept.erase(at);
      return true;
    });
  }
  void keep(const std::string& tenant, int64_t bytes) {
    EXPECT_EQ(memory->charge(tenant, bytes), ChargeResult::kCharged);
    kept[tenant] += bytes;
  }

  std::shared_ptr<GrammarMemory> memory = std::make_shared<GrammarMemory>(100);
  std::map<std::string, int64_t> kept;
};

TEST(GrammarMemory, SharesAreOfThoseWhoHoldSome) {
  GrammarMemory memory(100);
  EXPECT_EQ(memory.charge("a", 51),
            ChargeResult::kShareIsFull);  // half is reserved for a second tenant
  EXPECT_EQ(memory.charge("a", 50), ChargeResult::kCharged);
  EXPECT_EQ(memory.charge("b", 40), ChargeResult::kCharged);
  EXPECT_EQ(memory.charge("c", 34), ChargeResult::kShareIsFull);
  EXPECT_EQ(memory.charge("c", 11), ChargeResult::kAllIsFull);
  EXPECT_EQ(memory.charge("c", 10), ChargeResult::kCharged);
  memory.release("a", 50);
  memory.release("b", 40);
  EXPECT_EQ(memory.charge("c", 40), ChargeResult::kCharged);
  EXPECT_EQ(memory.used(), 50);
  GrammarMemory alone(100);
  EXPECT_EQ(alone.charge("", 100), ChargeResult::kCharged);  // without API keys: one tenant
  EXPECT_NE(alone.charge("", 1), ChargeResult::kCharged);
}

TEST(GrammarMemory, DropsATenantsOwnGrammarsFirst) {
  Budget budget;
  budget.keep("a", 30);
  budget.keep("b", 30);
  EXPECT_EQ(budget.memory->charge("a", 50), ChargeResult::kCharged);
  EXPECT_EQ(budget.kept, (std::map<std::string, int64_t>{{"b", 30}}));
}

TEST(GrammarMemory, DropsOthersOnlyWhereTheyAreInTheWay) {
  Budget two;
  two.keep("b", 30);
  EXPECT_EQ(two.memory->charge("a", 50), ChargeResult::kCharged);
  EXPECT_EQ(two.memory->charge("a", 1), ChargeResult::kShareIsFull);  // two tenants: half each
  EXPECT_EQ(two.kept.size(), 1U);

  Budget reduced;  // grammars that other tenants keep unused reduce the new tenant's share
  reduced.keep("b", 10);
  reduced.keep("c", 10);
  EXPECT_EQ(reduced.memory->charge("a", 50), ChargeResult::kCharged);
  EXPECT_EQ(reduced.kept.size(), 1U);

  Budget impossible;
  impossible.keep("b", 10);
  impossible.keep("c", 10);
  EXPECT_EQ(impossible.memory->charge("a", 51), ChargeResult::kShareIsFull);
  EXPECT_EQ(impossible.kept.size(), 2U);

  Budget full;
  EXPECT_EQ(full.memory->charge("a", 50), ChargeResult::kCharged);
  full.keep("b", 50);
  EXPECT_EQ(full.memory->charge("c", 20), ChargeResult::kCharged);
  EXPECT_EQ(full.memory->used(), 70);
}

TEST(GrammarCharge, HoldsWhatItHeldWhereMoreIsRefused) {
  const auto memory = std::make_shared<GrammarMemory>(100);
  {
    GrammarCharge charge(memory, "a");
    EXPECT_EQ(charge.set(40), ChargeResult::kCharged);
    EXPECT_EQ(charge.set(60), ChargeResult::kShareIsFull);
    EXPECT_EQ(memory->used(), 40);
    EXPECT_EQ(charge.set(50), ChargeResult::kCharged);
    EXPECT_EQ(charge.set(10), ChargeResult::kCharged);
    EXPECT_EQ(memory->used(), 10);
  }
  EXPECT_EQ(memory->used(), 0);
  GrammarCharge unbounded(nullptr, "a");
  EXPECT_EQ(unbounded.set(int64_t{1} << 40), ChargeResult::kCharged);
}

// Reads a random text of up to `tokens` tokens; its masks and states stay cached.
void read_some(const CompiledGrammar& grammar, const TokenTrie& trie, int tokens) {
  std::mt19937 random(7);
  const auto reader = grammar.begin({test::kEnd}, test::kManyTokens);
  for (int i = 0; i < tokens && reader->state() == RuleReader::State::kOpen; ++i) {
    const std::vector<int32_t> ids = test::allowed(reader->mask(), trie.ids());
    if (!reader->accept(ids[random() % ids.size()])) return;
  }
}

// The budget bounds the memory of the process: a charge equals the growth of the heap.
TEST(GrammarCharge, IsWhatTheHeapHolds) {
  if (test::kSanitized || heap_in_use() <= 0) GTEST_SKIP() << "another allocator than glibc's";
  using Kind = GrammarSource::Kind;
  const auto trie = test::trie_of(test::byte_tokens({"((", "(((", "(a", "ab", "a-", "-(", "))"}));
  for (const GrammarSource& source :
       {GrammarSource{Kind::kRegex, "[a-z]{2000}"},
        {Kind::kRegex, "([ab]{0,60}c){0,60}d"},
        {Kind::kGrammar, "root ::= l+\nl ::= [a-z]{0,900} \"a1\\n\""},
        {Kind::kGrammar,
         "root ::= \"(\" item* \")\"\nitem ::= root | [a-c]{1,9} (\"-\" | root)"}}) {
    SCOPED_TRACE(source.text);
    const int64_t before = heap_in_use();
    const auto grammar = CompiledGrammar::compile(source, trie);
    read_some(*grammar, *trie, 3000);
    const auto held = static_cast<double>(heap_in_use() - before);
    EXPECT_GT(held, 1 << 18);
    // 64 KiB are charged in advance for states not created yet.
    EXPECT_NEAR(static_cast<double>(grammar->bytes()), held, held / 10 + (64 << 10));
  }
}

}  // namespace
}  // namespace trireme::test_grammar_memory
