// Traffic of experts with a capacity, under maximally uneven routing.
//
// Dropped pairs are not sent. For a layer and micro-batch with n tokens, k experts each, capacity K
// = ceil(f n k / E) and rows of C elements of b bytes, a dp rank sends at most 4 b C K for each
// expert on another ep index, whatever the routing, and exactly that for an expert that receives
// all tokens. Besides the rows, nothing depends on the routing: the calls, and the bytes of
// everything but the all-to-all, are constant.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/layouts/layout_run.h"

namespace trireme::test::test_capacity {
namespace {

constexpr int64_t kExperts = 6;

RunConfig config_for(double capacity) {
  LayoutCase c;
  c.experts = "deepseek";  // has selection biases
  c.sizes.dp = c.sizes.ep = 2;
  RunConfig config = config_of(c);
  MoeConfig& moe = config.model.moe;
  moe.groups = moe.kept_groups = moe.experts_per_token = 1;
  moe.first_sparse = config.model.num_layers - 1;  // one sparse layer
  moe.bias_update_speed = 0;
  moe.capacity_factor = capacity;
  config.train_batch_size = 2;
  config.gradient_accumulation_steps = config.train_steps = 1;
  return config;
}

// Traffic of the ep group in one step, summed over its ranks.
Traffic expert_traffic(const RunConfig& config, int64_t expert, double bias) {
  std::mutex mutex;
  Traffic sum;
  LayoutRunOptions ring;
  ring.comm.algorithm = CommAlgorithm::kRing;
  on_ranks(config, ring, [&](LayoutRank& rank) {
    const int layer = static_cast<int>(config.model.num_layers) - 1;
    rank.state.model.routers()->bias(layer).as<double>()[expert] = bias;
    rank.train(0, false);
    const std::lock_guard lock(mutex);
    sum += rank.groups.ep->traffic();
  });
  return sum;
}

TEST(Capacity, BoundsTheBytesOfAnyRouting) {
  const RunConfig config = config_for(1.25);
  const int64_t n = config.sequence_length, row = config.model.hidden_size * 8;
  const auto capacity = static_cast<int64_t>(std::ceil(1.25 * static_cast<double>(n) / kExperts));
  const Traffic even = expert_traffic(config, 0, 0);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    SCOPED_TRACE(expert);
    const Traffic all = expert_traffic(config, expert, 100),
                  none = expert_traffic(config, expert, -100);
    // All tokens to one expert: one of the two dp ranks is on another ep index than the expert.
    EXPECT_EQ(all[CommKind::kAllToAll].sent_bytes, 4 * row * capacity);
    // No tokens to one expert: each rank sends at most the capacity of the other index's other
    // experts.
    const int64_t others = 2 * (kExperts / 2) - 1;
    EXPECT_GT(none[CommKind::kAllToAll].sent_bytes, 0);
    EXPECT_LE(none[CommKind::kAllToAll].sent_bytes, 4 * row * capacity * others);
    for (const Traffic& traffic : {all, none})
      for (size_t kind = 0; kind < kCommKinds; ++kind) {
        EXPECT_EQ(traffic.counters[kind].calls, even.counters[kind].calls);
        if (static_cast<CommKind>(kind) != CommKind::kAllToAll) {
          EXPECT_EQ(traffic.counters[kind].sent_bytes, even.counters[kind].sent_bytes);
        }
      }
  }
}

// Negative control: without a capacity all pairs are sent.
TEST(Capacity, WithoutOneEverythingToOneExpertTravels) {
  const RunConfig config = config_for(0);
  EXPECT_EQ(expert_traffic(config, 2, 100)[CommKind::kAllToAll].sent_bytes,
            4 * config.sequence_length * config.model.hidden_size * 8);
}

}  // namespace
}  // namespace trireme::test::test_capacity
