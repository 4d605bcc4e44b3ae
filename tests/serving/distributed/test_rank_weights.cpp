// Weight changes by the leader on follower ranks, without a model.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "serving/distributed/rank_loop.h"
#include "tests/serving/distributed/plans.h"
#include "tests/serving/distributed/word_weights.h"

namespace trireme::test_rank_weights {
namespace {

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    leader = std::make_unique<ControlChannel>(Socket(ends[0]), "a follower");
    follower = std::make_unique<ControlChannel>(Socket(ends[1]), "the leader");
  }
  std::unique_ptr<ControlChannel> leader, follower;
};

TEST(RankTask, ArrivesAsItWas) {
  Ends ends;
  send_task(*ends.leader, {"run/step-3", "byte", {"", "adapter"}, 7});
  const RankTask task = receive_task(*ends.follower, std::chrono::seconds(20));
  EXPECT_EQ(task.model, "run/step-3");
  EXPECT_EQ(task.tokenizer, "byte");
  EXPECT_EQ(task.adapters, (std::vector<std::string>{"", "adapter"}));
  EXPECT_EQ(task.blocks, 7);
  // Maximum number of maximum-length strings.
  const RankTask long_one{"run", "byte", std::vector(256, std::string(4096, 'a'))};
  std::thread sender([&] { send_task(*ends.leader, long_one); });
  EXPECT_EQ(receive_task(*ends.follower, std::chrono::seconds(20)).adapters, long_one.adapters);
  sender.join();
  ends.leader->send(MessageKind::kEnd, 0);
  EXPECT_THROW(receive_task(*ends.follower, std::chrono::seconds(20)), BadMessage);
  EXPECT_THROW(receive_task(*ends.follower, std::chrono::milliseconds(1)), Error);
}

class RankWeights : public testing::Test {
 protected:
  RankWeights() {
    std::vector<std::unique_ptr<ControlChannel>> channels;
    for (size_t i = 0; i < ends.size(); ++i) {
      channels.push_back(std::move(ends[i].leader));
      ranks.emplace_back([this, i] {
        test::WordTexts texts(weights[i]);
        follow_plans(*ends[i].follower, texts,
                     {.bounds = test::kPlanBounds, .weights = &weights[i]});
        computed[i] = texts.with;
      });
    }
    followers = std::make_unique<Followers>(std::move(channels));
  }
  ~RankWeights() override { end(); }
  void end() {
    followers->end();
    for (std::thread& rank : ranks)
      if (rank.joinable()) rank.join();
  }

  std::array<Ends, 2> ends;
  test::WordWeights weights[2] = {test::WordWeights("a"), test::WordWeights("a")};
  std::array<std::vector<std::string>, 2> computed;
  std::vector<std::thread> ranks;
  std::unique_ptr<Followers> followers;
};

// Plan after plan; every rank changes the weights before the same one.
TEST_F(RankWeights, ChangeBetweenTwoPlans) {
  int64_t plans = 0;
  test::for_each_plan(5, [&](const SchedulerOutput& plan, const StepOutput&) {
    if (plans == 3) followers->stage({.path = "b"});
    if (plans == 6) {
      EXPECT_EQ(followers->staged(), "");
      followers->use();
      followers->used();
      followers->drop();
    }
    followers->send(MessageKind::kPlan, plan.number, encode_plan(plan));
    ++plans;
  });
  ASSERT_GT(plans, 8);
  end();
  for (const std::vector<std::string>& with : computed) {
    ASSERT_EQ(std::ssize(with), plans);
    for (int64_t i = 0; i < plans; ++i)
      EXPECT_EQ(with[static_cast<size_t>(i)], i < 6 ? "a" : "b") << i;
  }
  for (const test::WordWeights& one : weights) EXPECT_EQ(one.dropped, 1);
}

TEST_F(RankWeights, AreRefusedByOneForAll) {
  weights[1].refuses = "b";
  followers->stage({.path = "b"});
  EXPECT_EQ(followers->staged(), "b is for another model");
  followers->drop();
  followers->stage({.slot = 2, .path = "c"});
  EXPECT_EQ(followers->staged(), "");
  followers->use();
  followers->used();
  end();
  EXPECT_EQ(weights[0].used(), "a 2c");
  EXPECT_EQ(weights[1].used(), "a 2c");
}

TEST(RankLoop, HasNoWeightsToChangeWhereItWasGivenNone) {
  Ends ends;
  test::RecordedTexts texts(24, 4, 50);
  ends.leader->send(MessageKind::kUse, 1);
  EXPECT_THROW(follow_plans(*ends.follower, texts, {.bounds = test::kPlanBounds}), BadMessage);
}

}  // namespace
}  // namespace trireme::test_rank_weights
