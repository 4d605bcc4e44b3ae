#include <gtest/gtest.h>

#include <string>

#include "engine/core/error.h"
#include "serving/load_balancer/prefix_table.h"

namespace trireme::test_prefix_table {
namespace {

std::string text(size_t blocks, char letter) {
  return std::string(blocks * kPrefixBlockBytes, letter);
}

TEST(PrefixBlocks, DependOnAllBefore) {
  const auto ab = prefix_blocks(text(1, 'a') + text(1, 'b') + "rest", 0);
  const auto bb = prefix_blocks(text(2, 'b'), 0);
  const auto ac = prefix_blocks(text(1, 'a') + text(1, 'c'), 0);
  ASSERT_EQ(ab.size(), 2U);
  EXPECT_EQ(ab[0], ac[0]);
  EXPECT_NE(ab[1], ac[1]);
  EXPECT_NE(ab[1], bb[1]);  // the same block after another one
  EXPECT_NE(prefix_blocks(text(1, 'a'), 1)[0], ab[0]);
  EXPECT_TRUE(prefix_blocks(std::string(kPrefixBlockBytes - 1, 'a'), 0).empty());
  EXPECT_EQ(prefix_blocks(std::string((kMaxPrefixBlocks + 1) * kPrefixBlockBytes, 'a'), 0).size(),
            kMaxPrefixBlocks);
}

TEST(PrefixTable, FindsTheLongestBeginning) {
  PrefixTable table;
  table.insert(std::vector<uint64_t>{1, 2}, 0);
  table.insert(std::vector<uint64_t>{1, 2, 3}, 5);
  const auto find = [&](std::vector<uint64_t> blocks, ServerSet among = ~ServerSet{0}) {
    return table.find(blocks, among);
  };
  EXPECT_EQ(find({1, 2, 4}).servers, 0b100001U);
  EXPECT_EQ(find({1, 2, 4}).blocks, 2U);
  EXPECT_EQ(find({1, 2, 3}).servers, 0b100000U);
  EXPECT_EQ(find({1, 2, 3}, 0b1).servers, 0b1U);
  EXPECT_EQ(find({1, 2, 3}, 0b1).blocks, 2U);
  EXPECT_EQ(find({2, 3}).blocks, 2U);  // hashes normally cover what precedes them; here they do not
  EXPECT_EQ(find({7}).blocks, 0U);
  table.forget(5);
  EXPECT_EQ(find({1, 2, 3}).servers, 0b1U);
}

TEST(PrefixTable, IsBoundedAndForgetsTheOldest) {
  PrefixTable table(100);
  for (uint64_t i = 0; i < 1000; ++i) {
    table.insert(std::vector<uint64_t>{i}, 1);
    table.insert(std::vector<uint64_t>{5000}, 2);  // which is used constantly
    EXPECT_LE(table.size(), 100U);
  }
  EXPECT_EQ(table.find(std::vector<uint64_t>{0}, ~ServerSet{0}).blocks, 0U);
  EXPECT_EQ(table.find(std::vector<uint64_t>{999}, ~ServerSet{0}).blocks, 1U);
  EXPECT_EQ(table.find(std::vector<uint64_t>{5000}, ~ServerSet{0}).servers, 0b100U);
}

}  // namespace
}  // namespace trireme::test_prefix_table
