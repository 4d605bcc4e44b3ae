#include <gtest/gtest.h>

#include <set>

#include "parallel/layout.h"
#include "tests/parallel/layout_sizes.h"

namespace trireme::test_layout {
namespace {

using test::sizes_of;

TEST(Layout, RanksAreNumberedWithTensorFastest) {
  const ParallelSizes sizes = sizes_of(2, 3, 2, 4);
  for (int rank = 0; rank < world_size(sizes); ++rank) {
    const Layout l = layout_of(sizes, rank);
    EXPECT_EQ(((l.pp.index * 3 + l.dp.index) * 2 + l.cp.index) * 4 + l.tp.index, rank);
    EXPECT_EQ(l.data.index, l.dp.index * 2 + l.cp.index);
    EXPECT_EQ(l.data.size, 6);
  }
}

TEST(Layout, OrderIsConfigurable) {
  ParallelSizes sizes = sizes_of(2, 3, 1, 2);
  sizes.order = "tp-cp-pp-dp";
  for (int rank = 0; rank < world_size(sizes); ++rank) {
    const Layout l = layout_of(sizes, rank);
    EXPECT_EQ((l.dp.index * 2 + l.pp.index) * 2 + l.tp.index, rank);
  }
}

TEST(Layout, ExpertsSeeTheSameRanksOnceMore) {
  const ParallelSizes sizes = sizes_of(2, 2, 1, 2, 2, 1);
  std::set<std::vector<int>> seen;
  for (int rank = 0; rank < world_size(sizes); ++rank) {
    const Layout l = layout_of(sizes, rank);
    EXPECT_EQ(l.edp.size, 2);
    const int stage_rank = (l.edp.index * 2 + l.ep.index) * 1 + l.etp.index;
    EXPECT_EQ(stage_rank, l.dp.index * 2 + l.tp.index);
    seen.insert({l.pp.index, l.edp.index, l.ep.index, l.etp.index});
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Layout, ProblemsNameTheKeyAndTheNumbers) {
  const auto first = [](const ParallelSizes& sizes, int ranks) {
    const std::vector<LayoutProblem> problems = layout_problems(sizes, ranks);
    return problems.empty() ? std::string() : problems.front().key + ": " + problems.front().text;
  };
  EXPECT_EQ(first(sizes_of(1, 2, 1, 2), 4), "");
  EXPECT_EQ(
      first(sizes_of(1, 3, 1, 1), 4),
      "parallel.tensor_model_parallel_size: the layout pp=1 x dp=3 x cp=1 x tp=1 needs 3 ranks "
      "but the run has 4; change the layout or start 3");
  EXPECT_EQ(first(sizes_of(1, 0, 1, 1), 1),
            "parallel.data_parallel_size: must be at least 1, got 0");
  EXPECT_EQ(
      first(sizes_of(1, 2, 1, 1, 4), 2),
      "parallel.expert_model_parallel_size: ep 4 x etp 1 = 4 does not divide the 2 ranks of a "
      "pipeline stage (dp x cp x tp)");
  ParallelSizes wrong;
  wrong.order = "tp-cp-dp";
  EXPECT_EQ(first(wrong, 1),
            "parallel.order: must hold tp, cp, dp and pp once each, such as \"tp-cp-dp-pp\", got "
            "\"tp-cp-dp\"");
}

TEST(Layout, HostileSizesAreRefusedAndNotMultiplied) {
  const auto all = [](const ParallelSizes& sizes) {
    std::string said;
    for (const LayoutProblem& problem : layout_problems(sizes, 4)) said += problem.text + "\n";
    return said;
  };
  constexpr int kHuge = 1 << 20;
  // 65536 x 65536 is 0 in 32 bits.
  const std::string experts = all(sizes_of(1, 4, 1, 1, 65536, 65536));
  EXPECT_NE(experts.find("= more than 1073741824 does not divide the 4 ranks"), std::string::npos)
      << experts;
  const std::string dense = all(sizes_of(kHuge, kHuge, kHuge, kHuge));
  EXPECT_NE(dense.find("needs more than 1073741824 ranks but the run has 4"), std::string::npos)
      << dense;
  const std::string both = all(sizes_of(1, 1, 1, 1, 65536, 65536));
  EXPECT_NE(both.find("needs 1 ranks but the run has 4"), std::string::npos) << both;
}

}  // namespace
}  // namespace trireme::test_layout
