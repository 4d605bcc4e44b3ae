// Choice of the server for a request.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/load_balancer/server_choice.h"

namespace trireme::test_server_choice {
namespace {

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
