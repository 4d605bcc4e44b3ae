// When speculation is switched off and on again, with simulated step times.
#include <gtest/gtest.h>

#include "serving/scheduler/speculation_switch.h"

namespace trireme::test_speculation_switch {
namespace {

// A server whose steps give 1 token per sequence in 1 s, and with draft tokens `brought` tokens in
// `cost` s.
struct MadeUp {
  double brought = 3, cost = 1.5;
  int64_t draft_tokens = 4;
  SpeculationSwitch how = {};

  // Runs steps with this many sequences. Returns the share of steps with draft tokens.
  double run(int64_t steps, int64_t sequences = 4) {
    int64_t drafted = 0;
    for (int64_t n = 0; n < steps; ++n) {
      const bool with = how.should_draft(sequences);
      const double tokens = static_cast<double>(100 * sequences) * (with ? brought : 1);
      drafted += with ? 1 : 0;
      how.measured({.sequences = sequences,
                    .speculates = with,
                    .draft_tokens = with ? draft_tokens : 0,
                    .tokens = static_cast<int64_t>(tokens),
                    .seconds = with ? cost : 1});
    }
    return static_cast<double>(drafted) / static_cast<double>(steps);
  }
};

TEST(SpeculationSwitch, StaysOnWhereItPaysAndSeldomTriesWithout) {
  MadeUp server;
  EXPECT_GT(server.run(4000), 0.95);
  EXPECT_EQ(server.how.changes(), 0);
  EXPECT_TRUE(server.how.should_draft(4));
  EXPECT_NEAR(server.how.gain(), 2, 0.01);
}

TEST(SpeculationSwitch, GoesOffWhereItLosesAndOnAgainOnceItPays) {
  MadeUp server{.brought = 1.2, .cost = 2};
  // The first steps with draft tokens, some without, and it is off.
  server.run(SpeculationSwitch::kFirstInterval + 2 * SpeculationSwitch::kProbe +
             SpeculationSwitch::kSettling);
  EXPECT_EQ(server.how.changes(), 1);
  EXPECT_FALSE(server.how.should_draft(4));
  EXPECT_NEAR(server.how.gain(), 0.6, 0.01);
  EXPECT_LT(server.run(4000), 0.05);
  server.brought = 4;  // other sequences
  server.run(SpeculationSwitch::kMaxInterval + 50);
  EXPECT_EQ(server.how.changes(), 2);
  EXPECT_GT(server.run(4000), 0.95);
  server.brought = 1;  // and others: detected without another probe
  server.run(60);
  EXPECT_EQ(server.how.changes(), 3);
}

TEST(SpeculationSwitch, DoesNotWaverWhereItMakesNoDifference) {
  MadeUp server{.brought = 1.9, .cost = 2};
  server.run(2000);
  EXPECT_EQ(server.how.changes(), 1);
  server.brought = 2.1;  // a gain of 1.05 is not enough to switch it on
  server.run(4000);
  EXPECT_EQ(server.how.changes(), 1);
  MadeUp other{.brought = 2.1, .cost = 2};  // but enough to keep it on
  other.run(4000);
  EXPECT_EQ(other.how.changes(), 0);
  // Step times with a random variation of a fifth.
  MadeUp noisy{.brought = 2.1, .cost = 2};
  uint64_t random = 1;
  for (int n = 0; n < 6000; ++n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    noisy.cost = 2 * (0.9 + 0.2 * static_cast<double>(random >> 40) / 16777216.0);
    noisy.run(1);
  }
  EXPECT_LE(noisy.how.changes(), 1);
}

TEST(SpeculationSwitch, JudgesEachLoadByItself) {
  MadeUp server;
  for (int round = 0; round < 40; ++round) {
    server.cost = 1.5;
    server.run(50, 2);
    server.cost = 6;  // 30 sequences saturate the machine; draft tokens then cost as much as tokens
    server.run(50, 30);
  }
  EXPECT_TRUE(server.how.should_draft(2));
  EXPECT_TRUE(server.how.should_draft(3));
  EXPECT_FALSE(server.how.should_draft(30));
  EXPECT_FALSE(server.how.should_draft(16));
  EXPECT_TRUE(server.how.should_draft(200));  // nothing was measured at this size
  EXPECT_EQ(server.how.changes(), 1);
}

// The first steps after a switch, in which a draft model catches up.
TEST(SpeculationSwitch, LeavesOutWhatFollowsAChange) {
  MadeUp server;
  bool before = true;
  int64_t since = 100;
  for (int n = 0; n < 3000; ++n) {
    const bool with = server.how.should_draft(4);
    since = with == before ? since + 1 : 0;
    before = with;
    server.cost = since < 4 ? 50 : 1.5;
    server.run(1);
  }
  EXPECT_EQ(server.how.changes(), 0);
}

TEST(SpeculationSwitch, LearnsNothingFromStepsWithoutDrafts) {
  MadeUp server{.brought = 0.5, .draft_tokens = 0};
  EXPECT_EQ(server.run(1000), 1);
  EXPECT_EQ(server.how.gain(), 0);
}

}  // namespace
}  // namespace trireme::test_speculation_switch
