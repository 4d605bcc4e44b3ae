// Choice of the server for a request.
#include <gtest/gtest.h>

#include <string>

#include "engine/core/error.h"
#include "serving/balance/server_choice.h"

namespace trireme::test_server_choice {
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

size_t chosen(ServerChoice& choice, const std::vector<uint64_t>& blocks = {}, ServerSet tried = 0) {
  const auto server = choice.begin(blocks, tried);
  return server ? server->server : SIZE_MAX;
}

TEST(ServerChoice, TakesTheLeastLoadedInTurn) {
  ServerChoice choice(3, {});
  EXPECT_EQ(chosen(choice), SIZE_MAX);
  EXPECT_FALSE(choice.any_up());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(choice.set_up(i, true));
  EXPECT_FALSE(choice.set_up(0, true));
  EXPECT_EQ(chosen(choice), 0U);
  EXPECT_EQ(chosen(choice), 1U);
  EXPECT_EQ(chosen(choice), 2U);
  choice.end(1);
  EXPECT_EQ(chosen(choice), 1U);
  EXPECT_EQ(choice.load(1), 1);
  EXPECT_EQ(chosen(choice, {}, 0b011), 2U);  // the others were tried already
  EXPECT_EQ(chosen(choice, {}, 0b111), SIZE_MAX);
  choice.set_up(0, false);
  choice.set_up(1, false);
  EXPECT_EQ(chosen(choice), 2U);
}

TEST(ServerChoice, KeepsPromptsTogetherUntilTheLoadIsOutOfBalance) {
  ServerChoice choice(2, {.absolute = 3, .relative = 1.5});
  choice.set_up(0, true);
  choice.set_up(1, true);
  const std::vector<uint64_t> prompt = {1, 2, 3};
  EXPECT_EQ(choice.begin(prompt, 0)->affinity, Affinity::kMiss);
  for (int i = 0; i < 3; ++i) {
    const auto again = choice.begin(prompt, 0);
    EXPECT_EQ(again->server, 0U);
    EXPECT_EQ(again->affinity, Affinity::kHit);
  }
  EXPECT_EQ(choice.load(0), 4);  // four against none: more than three apart
  const auto other = choice.begin(prompt, 0);
  EXPECT_EQ(other->server, 1U);
  EXPECT_EQ(other->affinity, Affinity::kMiss);
  EXPECT_EQ(chosen(choice, prompt), 1U);  // now both have the prefix, and this one has less load
}

TEST(ServerChoice, AsksForAShareOfThePrompt) {
  ServerChoice choice(2, {.cache_threshold = 0.5});
  choice.set_up(0, true);
  choice.set_up(1, true);
  EXPECT_EQ(chosen(choice, {1, 2}), 0U);
  EXPECT_EQ(chosen(choice, {1, 2, 3, 4}), 0U);     // half of it is cached
  EXPECT_EQ(chosen(choice, {1, 2, 5, 6, 7}), 1U);  // less of it is cached
  EXPECT_EQ(choice.begin({}, 0)->affinity, Affinity::kNone);
}

TEST(ServerChoice, AServerThatWasLostKnowsNothing) {
  ServerChoice choice(2, {});
  choice.set_up(0, true);
  choice.set_up(1, true);
  EXPECT_EQ(chosen(choice, {1}), 0U);
  EXPECT_EQ(chosen(choice), 1U);
  EXPECT_EQ(chosen(choice), 0U);
  choice.set_up(0, false);
  choice.set_up(0, true);
  EXPECT_EQ(choice.begin(std::vector<uint64_t>{1}, 0)->server, 0U);  // it was not removed
  choice.set_up(0, false, true);
  choice.set_up(0, true);
  EXPECT_EQ(choice.begin(std::vector<uint64_t>{1}, 0)->affinity, Affinity::kMiss);
}

TEST(ServerChoice, HasABound) {
  EXPECT_THROW(ServerChoice(0, {}), Error);
  EXPECT_THROW(ServerChoice(kMaxServers + 1, {}), Error);
  EXPECT_NO_THROW(ServerChoice(kMaxServers, {}));
}

}  // namespace
}  // namespace trireme::test_server_choice
