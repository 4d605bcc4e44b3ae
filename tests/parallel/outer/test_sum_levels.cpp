#include <gtest/gtest.h>

#include <set>

#include "parallel/comm/world.h"
#include "parallel/outer/sum_levels.h"

namespace trireme::test::test_sum_levels {
namespace {

std::vector<ParallelSizes> layouts() {
  std::vector<ParallelSizes> all;
  for (const char* order : {"tp-cp-dp-pp", "dp-cp-tp-pp", "cp-tp-pp-dp"})
    for (int tp : {1, 2})
      for (int cp : {1, 2})
        for (int dp : {1, 2, 4})
          for (int ep : {1, 2, 4}) {
            ParallelSizes sizes;
            sizes.order = order;
            sizes.tp = tp;
            sizes.cp = cp;
            sizes.dp = dp;
            sizes.ep = ep;
            if (tp * cp * dp % ep == 0) all.push_back(sizes);
          }
  return all;
}

TEST(SumLevels, DenseParametersAreSummedOverContextThenReplicas) {
  for (const ParallelSizes& sizes : layouts())
    for (int rank = 0; rank < world_size(sizes); ++rank) {
      const Layout layout = layout_of(sizes, rank);
      const SumLevels levels = sum_levels(sizes, layout, Region::kDense);
      EXPECT_EQ(levels.inner, layout.cp);
      EXPECT_EQ(levels.outer, layout.dp);
    }
}

// The levels number the ranks that hold the same experts; ranks of a replica have one outer index.
TEST(SumLevels, NumberAllRanksOfTheExperts) {
  for (const ParallelSizes& sizes : layouts()) {
    std::map<std::pair<int, int>, std::set<std::pair<int, int>>> numbers;  // by (ep, etp)
    std::map<std::pair<int, int>, std::set<int>> replicas;                 // by (ep, outer)
    for (int rank = 0; rank < world_size(sizes); ++rank) {
      const Layout layout = layout_of(sizes, rank);
      const SumLevels levels = sum_levels(sizes, layout, Region::kExpert);
      EXPECT_EQ(levels.inner.size * levels.outer.size, layout.edp.size);
      numbers[{layout.ep.index, layout.etp.index}].insert({levels.inner.index, levels.outer.index});
      replicas[{layout.ep.index, levels.outer.index}].insert(layout.dp.index);
    }
    for (const auto& [experts, pairs] : numbers)
      EXPECT_EQ(static_cast<int>(pairs.size()), layout_of(sizes, 0).edp.size);
    for (const auto& [at, dp] : replicas) EXPECT_EQ(dp.size(), 1u);
  }
}

// With 3 x 2 ranks and 2 groups of experts the replicas have 1 or 2 ranks with the same experts.
TEST(SumLevels, UnequalReplicasAreLevelsRankByRank) {
  ParallelSizes sizes;
  sizes.tp = 3;
  sizes.dp = sizes.ep = 2;
  for (int rank = 0; rank < 6; ++rank) {
    const Layout layout = layout_of(sizes, rank);
    const SumLevels levels = sum_levels(sizes, layout, Region::kExpert);
    EXPECT_EQ(levels.inner, GroupCoord{});
    EXPECT_EQ(levels.outer, layout.edp);
  }
}

TEST(SumLevels, NodesAreSites) {
  ParallelSizes sizes;
  sizes.cp = 2;
  sizes.dp = 4;
  const std::vector<int> unequal{0, 0, 0, 0, 0, 1, 1, 1};
  for (int rank = 0; rank < 8; ++rank) {
    const Layout layout = layout_of(sizes, rank);
    const SumLevels levels = sum_levels(sizes, layout, Region::kDense, {0, 0, 0, 0, 1, 1, 1, 1});
    EXPECT_EQ(levels.inner, (GroupCoord{4, rank % 4}));
    EXPECT_EQ(levels.outer, (GroupCoord{2, rank / 4}));
    EXPECT_THROW(sum_levels(sizes, layout, Region::kDense, unequal), InputError);
  }
}

TEST(SumLevels, GroupsSumOverTheirLevel) {
  ParallelSizes sizes;
  sizes.cp = 2;
  sizes.dp = 3;
  run_threads(6, [&](Communicator& world) {
    const Groups all(world, sizes);
    const SumLevels levels = sum_levels(sizes, all.layout, Region::kDense);
    const SumGroups groups(all.of(Region::kDense), Region::kDense, levels);
    const int64_t inner =
        groups.inner->all_reduce_scalar(int64_t{1} << world.rank(), ReduceOp::kSum);
    const int64_t outer =
        groups.outer->all_reduce_scalar(int64_t{1} << world.rank(), ReduceOp::kSum);
    EXPECT_EQ(inner, int64_t{3} << world.rank() / 2 * 2);  // neighbours are of one replica
    EXPECT_EQ(outer, int64_t{0b010101} << world.rank() % 2);
    EXPECT_EQ(groups.inner->rank(), levels.inner.index);
    EXPECT_EQ(groups.outer->rank(), levels.outer.index);
  });
}

}  // namespace
}  // namespace trireme::test::test_sum_levels
