// Blocks by number: users, eviction order, and lookup of cached prefixes.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engine/core/error.h"
#include "serving/scheduler/kv_block_pool.h"

namespace trireme::test_kv_block_pool {
namespace {

using Tokens = std::vector<int32_t>;

TEST(KvBlockPool, TakesEachBlockOnceAndTheLongestUnusedFirst) {
  KvBlockPool pool(3, 2, 1);
  std::set<int32_t> taken;
  for (int n = 0; n < 3; ++n) taken.insert(pool.take());
  EXPECT_EQ(taken, (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.free(), 0);
  EXPECT_THROW(pool.take(), Error);
  pool.release(1);
  pool.release(0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 0);
}

TEST(KvBlockPool, ABlockIsFreeWhenItsLastUserIsGone) {
  KvBlockPool pool(1, 2, 1);
  const int32_t block = pool.take();
  pool.share(block);
  pool.release(block);
  EXPECT_EQ(pool.free(), 0);
  pool.release(block);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_THROW(pool.release(block), Error);
  EXPECT_THROW(pool.share(block), Error);
}

TEST(KvBlockPool, FindsWhatFollowsTheSameBeginningOnly) {
  KvBlockPool pool(4, 2, 1);
  const int32_t a = pool.take(), b = pool.take();
  const PrefixId start = pool.root("");
  const PrefixId first = pool.publish(a, start, Tokens{1, 2});
  const PrefixId second = pool.publish(b, first, Tokens{3, 4});
  PrefixId id = 0;
  EXPECT_EQ(pool.find(start, Tokens{1, 2}, id), a);
  EXPECT_EQ(id, first);
  EXPECT_EQ(pool.find(first, Tokens{3, 4}, id), b);
  EXPECT_EQ(id, second);
  EXPECT_EQ(pool.users(a), 2);
  EXPECT_EQ(pool.find(start, Tokens{3, 4}, id), -1);
  EXPECT_EQ(pool.find(first, Tokens{1, 2}, id), -1);
  EXPECT_EQ(pool.find(pool.root("somebody else"), Tokens{1, 2}, id), -1);
}

TEST(KvBlockPool, KeepsWhatNobodyUsesUntilTheBlockIsTaken) {
  KvBlockPool pool(2, 2, 1);
  const int32_t a = pool.take(), b = pool.take();
  const PrefixId start = pool.root("");
  const PrefixId first = pool.publish(a, start, Tokens{1, 2});
  pool.publish(b, first, Tokens{3, 4});
  pool.release(b);  // the last block first, as a sequence does
  pool.release(a);
  PrefixId id = 0;
  EXPECT_EQ(pool.find(start, Tokens{1, 2}, id), a);
  EXPECT_EQ(pool.free(), 1);
  pool.release(a);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.find(first, Tokens{3, 4}, id), -1);
  EXPECT_EQ(pool.find(start, Tokens{1, 2}, id), a);
}

TEST(KvBlockPool, OneBlockForEachBeginning) {
  KvBlockPool pool(3, 2, 1);
  const int32_t a = pool.take(), b = pool.take();
  const PrefixId start = pool.root("");
  const PrefixId id = pool.publish(a, start, Tokens{1, 2});
  EXPECT_EQ(pool.publish(b, start, Tokens{1, 2}), id);
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), a);  // evicted by that; b was never published
  PrefixId found = 0;
  EXPECT_EQ(pool.find(start, Tokens{1, 2}, found), -1);
}

TEST(KvBlockPool, ForgetsEverythingWhenTheWeightsChange) {
  KvBlockPool pool(2, 2, 1);
  const int32_t a = pool.take();
  const PrefixId before = pool.root("");
  const PrefixId old = pool.publish(a, before, Tokens{1, 2});
  pool.forget_all();
  PrefixId id = 0;
  EXPECT_EQ(pool.find(before, Tokens{1, 2}, id), -1);
  EXPECT_NE(pool.root(""), before);
  // A sequence that spans the weight change publishes blocks that no lookup can reach.
  const int32_t b = pool.take();
  pool.publish(b, old, Tokens{3, 4});
  EXPECT_EQ(pool.find(pool.root(""), Tokens{3, 4}, id), -1);
}

}  // namespace
}  // namespace trireme::test_kv_block_pool
