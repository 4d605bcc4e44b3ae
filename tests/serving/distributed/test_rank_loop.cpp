#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "serving/distributed/leading_executor.h"
#include "serving/distributed/rank_loop.h"
#include "tests/serving/distributed/plans.h"

namespace trireme::test_rank_loop {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{120'000};

// A leader and two followers run the same sequences, and all end.
TEST(RankLoop, FollowsALeader) {
  const PlanBounds& b = test::kPlanBounds;
  const auto texts = [&] {
    return std::make_unique<test::RecordedTexts>(b.blocks, b.block_tokens,
                                                 static_cast<int32_t>(b.ids));
  };
  std::vector<std::unique_ptr<ControlChannel>> leading, following;
  for (int i = 0; i < 2; ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    leading.push_back(std::make_unique<ControlChannel>(Socket(ends[0]), "a follower"));
    following.push_back(std::make_unique<ControlChannel>(Socket(ends[1]), "the leader"));
  }
  std::array<int64_t, 2> computed{};
  std::vector<std::thread> ranks;
  for (size_t i = 0; i < 2; ++i)
    ranks.emplace_back([&, i] {
      const auto own = texts();
      follow_plans(*following[i], *own, {.bounds = b});
      computed[i] = own->tokens;
    });
  auto own = texts();
  const test::RecordedTexts& leader = *own;
  Followers followers(std::move(leading));
  auto executor = std::make_unique<LeadingExecutor>(std::move(own), followers);
  test::for_each_plan(20, [&](const SchedulerOutput& plan, const StepOutput& outcome) {
    EXPECT_EQ(encode_output(executor->execute(plan)), encode_output(outcome));
    EXPECT_GT(executor->plan_send_seconds(), 0);
  });
  const int64_t tokens = leader.tokens;
  executor.reset();
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GT(tokens, 0);
  EXPECT_EQ(computed[0], tokens);
  EXPECT_EQ(computed[1], tokens);
}

TEST(RankLoop, ComputesNothingThatIsOutOfBounds) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ControlChannel leader(Socket(ends[0]), "a follower"), follower(Socket(ends[1]), "the leader");
  SchedulerOutput plan;
  plan.number = 1;
  plan.sequences.push_back({.slot = 0, .tokens = 1});
  plan.tables.push_back({.kept_blocks = 1});
  plan.tokens = {1};
  leader.send(MessageKind::kPlan, 1, encode_plan(plan));
  test::RecordedTexts texts(24, 4, 50);
  EXPECT_THROW(follow_plans(follower, texts, {.bounds = test::kPlanBounds}), BadMessage);
  EXPECT_EQ(texts.tokens, 0);
}

TEST(RankLoop, ShowsThatItLives) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ControlChannel leader(Socket(ends[0]), "a follower"), follower(Socket(ends[1]), "the leader");
  Heartbeat heartbeat(follower);
  heartbeat.computed(5);
  for (int i = 0; i < 3; ++i) {
    const std::optional<Message> beat = leader.receive(kLong);
    ASSERT_TRUE(beat.has_value());
    EXPECT_TRUE(beat->is(MessageKind::kBeat));
    EXPECT_EQ(beat->number, 5u);
  }
}

}  // namespace
}  // namespace trireme::test_rank_loop
