// A step whose loss or gradient is not finite changes nothing that training depends on.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "parallel/comm/world.h"
#include "tests/training/step/train_rank.h"

namespace trireme::test_train_step {
namespace {

constexpr int64_t kLength = 12;

RunConfig config_for(int ranks) {
  RunConfig c;
  c.model.family = ModelFamily::kDeepseek;
  c.model.vocab_size = 31;
  c.model.hidden_size = 16;
  c.model.intermediate_size = 24;
  c.model.num_layers = 2;
  c.model.num_heads = c.model.num_kv_heads = 2;
  c.model.head_dim = 8;
  c.model.max_positions = kLength;
  c.model.initializer_range = 0.2;
  c.model.moe.experts = 6;
  c.model.moe.experts_per_token = 2;
  c.model.moe.intermediate_size = 8;
  c.model.moe.sigmoid_scores = c.model.moe.selection_bias = true;
  c.model.moe.bias_update_speed = 0.01;
  c.model.moe.balance_coef = 0.1;
  c.model.moe.balance_scope = BalanceScope::kGlobal;  // the shares of a step affect the next one
  c.parallel.dp = ranks;
  c.train_batch_size = ranks;
  c.micro_batch_size = c.gradient_accumulation_steps = 1;
  c.sequence_length = kLength;
  c.train_steps = 8;
  c.optimizer.lr = 5e-3;
  c.scheduler.style = DecayStyle::kConstant;
  return c;
}

MicroBatch sample(int64_t n) {
  MicroBatch b = shape_of_micro_batch(1, kLength);
  for (size_t t = 0; t < b.tokens.size(); ++t) {
    const auto i = static_cast<int32_t>(t);
    b.tokens[t] = (static_cast<int32_t>(n) * 5 + i * i) % 31;
    b.targets[t] = (b.tokens[t] * 7 + 3) % 31;
    b.positions[t] = i;
    b.global_index[t] = n * kLength + i;
  }
  b.valid_targets = kLength;
  return b;
}

std::vector<uint8_t> bytes_of(const ConstTensor& t) {
  std::vector<uint8_t> out(static_cast<size_t>(t.bytes()));
  std::memcpy(out.data(), t.raw(), out.size());
  return out;
}

// Bits of weights, optimizer states, selection biases and shares of experts.
std::vector<std::vector<uint8_t>> bits(const TrainState& state) {
  std::vector<std::vector<uint8_t>> out{bytes_of(state.store.flat_values())};
  for (const FlatOptimizer::State& s : state.optimizer.states()) out.push_back(bytes_of(s.flat));
  for (const RouterState::Named& named : state.model.routers()->saved())
    out.push_back(bytes_of(named.tensor));
  return out;
}

void set_loss_scale(Ctx& ctx, TrainState& state, double scale) {
  StepState steps = state.read_step_state(ctx);
  steps.loss_scale = scale;
  state.write_step_state(ctx, steps);
}

// Steps 0 and 2, with or without a skipped one between them; returns the final state.
std::vector<std::vector<uint8_t>> trained(Communicator& group, bool skip) {
  const RunConfig config = config_for(group.size());
  test::TrainRank rank(config, group);
  Ctx& ctx = rank.ctx;
  TrainState& state = rank.state;
  const auto train = [&](int64_t number) {
    return rank.run(number, {sample(number * group.size() + group.rank())});
  };
  const auto fresh = bits(state);
  EXPECT_FALSE(train(0).skipped);
  const auto before = bits(state);
  for (size_t i = 0; i < fresh.size(); ++i) EXPECT_NE(before[i], fresh[i]) << i;
  if (skip) {  // infinite gradients with normal routing
    set_loss_scale(ctx, state, std::numeric_limits<double>::infinity());
    EXPECT_TRUE(train(1).skipped);
    EXPECT_EQ(bits(state), before);
    set_loss_scale(ctx, state, 1);
  }
  EXPECT_FALSE(train(2).skipped);
  EXPECT_NE(bits(state), before);
  return bits(state);
}

class SkippedStepTest : public ::testing::TestWithParam<int> {};

TEST_P(SkippedStepTest, ChangesNothingAndTheNextStepIsUnaffected) {
  run_threads(GetParam(), [](Communicator& group) {
    const auto without = trained(group, false);
    EXPECT_EQ(trained(group, true), without);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SkippedStepTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace trireme::test_train_step
