// Queue that serves its tenants in turn.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "engine/core/fair_queue.h"

namespace trireme::test_fair_queue {
namespace {

std::vector<int> drained(FairQueue<int>& queue) {
  std::vector<int> out;
  while (const auto job = queue.pop()) out.push_back(*job);
  EXPECT_EQ(queue.size(), 0);
  EXPECT_EQ(queue.tenants(), 0);
  return out;
}

TEST(FairQueue, ServesTenantsInTurn) {
  FairQueue<int> queue;
  for (int i = 0; i < 4; ++i) queue.push("a", i);
  queue.push("b", 10);
  queue.push("c", 20);
  queue.push("b", 11);
  EXPECT_EQ(queue.size(), 7);
  EXPECT_EQ(queue.tenants(), 3);
  EXPECT_EQ(drained(queue), (std::vector<int>{0, 10, 20, 1, 11, 2, 3}));
  // A tenant that returns waits for at most one job of each other tenant.
  for (int i = 0; i < 3; ++i) queue.push("a", i);
  EXPECT_EQ(queue.pop(), 0);
  queue.push("b", 10);
  EXPECT_EQ(drained(queue), (std::vector<int>{1, 10, 2}));
}

TEST(FairQueue, PutsTheLowestRankOfATenantFirst) {
  FairQueue<int> queue;
  queue.push("a", 1, 500);
  queue.push("a", 2, 7);
  queue.push("b", 3, 9000);
  queue.push("a", 4, 7);
  EXPECT_EQ(drained(queue), (std::vector<int>{2, 3, 4, 1}));
}

TEST(FairQueue, PassesOverJobsThatMayNotRun) {
  FairQueue<int> queue;
  for (const int job : {100, 1, 101}) queue.push("a", job);
  queue.push("b", 102);
  const auto small = [](const std::string&, int job) { return job < 100; };
  EXPECT_EQ(queue.pop_if(small), 1);
  EXPECT_EQ(queue.pop_if(small), std::nullopt);
  EXPECT_EQ(drained(queue), (std::vector<int>{102, 100, 101}));
}

TEST(FairQueue, ForgetsJobs) {
  FairQueue<int> queue;
  const auto first = queue.push("a", 1), only = queue.push("b", 2);
  queue.push("a", 3);
  EXPECT_EQ(queue.withdraw("b", only), 2);
  EXPECT_EQ(queue.withdraw("b", only), std::nullopt);
  EXPECT_EQ(queue.withdraw("a", first), 1);
  queue.push("c", 4);
  queue.erase_if([](int job) { return job == 3; });
  EXPECT_EQ(queue.tenants(), 1);
  EXPECT_EQ(drained(queue), (std::vector<int>{4}));
}

// A job whose `moves_left`-th move throws, as when memory runs out.
struct Fragile {
  static inline int moves_left = 0;
  Fragile() = default;
  Fragile(Fragile&&) { fall(); }
  Fragile& operator=(Fragile&&) {
    fall();
    return *this;
  }
  static void fall() {
    if (--moves_left == 0) throw std::bad_alloc();
  }
};

TEST(FairQueue, IsAsItWasWhereAJobCannotBePushed) {
  FairQueue<Fragile> queue;
  int thrown = 0;
  for (int moves = 1; moves <= 3; ++moves) {
    Fragile::moves_left = moves;
    try {
      queue.push("a", Fragile());
    } catch (const std::bad_alloc&) {
      ++thrown;
      EXPECT_EQ(queue.size(), 0);
      EXPECT_EQ(queue.tenants(), 0);
    }
    Fragile::moves_left = 0;
    while (queue.pop().has_value()) continue;
    queue.push("a", Fragile());
    queue.push("a", Fragile());
    EXPECT_TRUE(queue.pop().has_value());
    EXPECT_TRUE(queue.pop().has_value());
    EXPECT_FALSE(queue.pop().has_value());
    EXPECT_EQ(queue.tenants(), 0);
  }
  EXPECT_GE(thrown, 2);
}

TEST(FairQueue, SharesEvenlyAndLeavesHalfToWhoMayCome) {
  EXPECT_EQ(tenant_share(100, "", 1), 100);
  EXPECT_EQ(tenant_share(100, "a", 1), 50);
  EXPECT_EQ(tenant_share(100, "a", 2), 50);
  EXPECT_EQ(tenant_share(100, "a", 5), 20);
}

}  // namespace
}  // namespace trireme::test_fair_queue
