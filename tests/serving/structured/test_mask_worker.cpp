#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <random>

#include "serving/structured/grammar_compiler.h"
#include "serving/structured/mask_worker.h"
#include "tests/serving/structured/deep_grammar.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test_mask_worker {
namespace {

using namespace test;
using Kind = GrammarSource::Kind;

// Masks do not depend on the thread that computes them: this one within its work limit, or the
// worker.
TEST(MaskWorker, MakesTheMasksThatTakeLong) {
  const auto trie = trie_of(byte_tokens(kManyDeep));
  const auto worker = std::make_shared<MaskWorker>();
  const auto plain = CompiledGrammar::compile(kDeep, trie);
  const auto worked = CompiledGrammar::compile(kDeep, trie, {}, {.worker = worker});
  std::mutex mutex;
  std::condition_variable changed;
  const auto pace = std::make_shared<MaskPace>([&] {
    const std::lock_guard lock(mutex);
    changed.notify_one();
  });
  std::mt19937 random(4);
  int64_t here = 0;
  for (int text = 0; text < 20; ++text) {
    const auto one = plain->begin({kEnd}, kManyTokens);
    const auto other = worked->begin({kEnd}, kManyTokens, pace);
    for (int n = 0; n < 200; ++n) {
      if (other->state() == RuleReader::State::kPending) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return other->state() != RuleReader::State::kPending; });
      } else {
        ++here;
      }
      ASSERT_EQ(other->state(), one->state());
      if (one->state() == RuleReader::State::kEnded) break;
      ASSERT_TRUE(std::ranges::equal(one->mask(), other->mask())) << text << ", " << n;
      const std::vector<int32_t> ids = allowed(one->mask(), trie->ids());
      const int32_t id = ids[random() % ids.size()];
      if (id == kEnd) break;
      pace->left = static_cast<int64_t>(random() % 3) * 300;
      one->accept(id);
      other->accept(id);
    }
  }
  EXPECT_GT(worker->done(), 10);
  EXPECT_GT(here, 10);
  pace->close();
}

}  // namespace
}  // namespace trireme::test_mask_worker
