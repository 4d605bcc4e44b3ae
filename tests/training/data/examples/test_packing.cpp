#include <gtest/gtest.h>

#include "training/data/examples/packing.h"

namespace trireme::test_packing {
namespace {

TEST(Packing, PutsTheLongestFirstWhereTheyFitBest) {
  const Packing packing = pack({3, 5, 8, 2, 5, 1}, 8);
  EXPECT_EQ(packing.items, (std::vector<int64_t>{2, 1, 3, 5, 4, 0}));
  EXPECT_EQ(packing.begin, (std::vector<int64_t>{0, 1, 4, 6}));
  EXPECT_EQ(one_each(2).items, (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace trireme::test_packing
