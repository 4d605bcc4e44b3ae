#include <gtest/gtest.h>

#include "engine/ops/optimizer/optimizer_step.h"
#include "tests/support/compare.h"
#include "tests/transformer/layers/moe_case.h"
#include "transformer/pass/router_state.h"

namespace trireme::test::test_router_state {
namespace {

using Values = std::vector<double>;

Tensor view_of(StepScalars& scalars) { return Tensor(&scalars, DType::kU8, {kStepScalarsBytes}); }

TEST(RouterState, MovesBiasesTowardsAnEvenLoad) {
  MoeCase c = moe_case("deepseek");
  c.config.num_layers = 3;
  c.config.moe.bias_update_speed = 0.25;
  run_threads(2, [&](Communicator& world) {
    const auto alone = world.split(world.rank(), 0, "alone");
    Ctx ctx(1, "test");
    StepScalars stepped;
    RouterState state(c.config, DType::kBF16);
    // Two segments; the second rank adds the same counts.
    state.count(ctx, 1,
                TestTensor(DType::kF64, {2, 8}, {1, 2, 3, 4, 0, 0, 3, 3, 2, 0, 0, 0, 0, 6, 0, 0}));
    state.finish_step(ctx, world, *alone, view_of(stepped));
    EXPECT_EQ(to_doubles(state.bias(1)), (Values{0, 0.25, 0, -0.25, 0.25, -0.25, 0, 0}));
    EXPECT_EQ(to_doubles(state.bias(0)), Values(8, 0.0));
    EXPECT_EQ(to_doubles(state.shares(1))[5], 0.25);
    ASSERT_EQ(std::ssize(state.loads()), 1);
    const ExpertLoad& load = state.loads()[0];
    EXPECT_EQ(load.layer, 1);
    EXPECT_EQ(load.max_over_mean, 2.0);  // 12 of 6
    EXPECT_EQ(load.p50, 6.0);
    EXPECT_EQ(load.p90, 12.0);
    state.finish_step(ctx, *alone, world, view_of(stepped));
    EXPECT_TRUE(state.loads().empty()) << "nothing was routed";
  });
  c.config.moe.first_sparse = 2;
  c.config.moe.balance_scope = BalanceScope::kGlobal;
  const RouterState state(c.config, DType::kF32);
  ASSERT_EQ(std::ssize(state.saved()), 2);
  EXPECT_EQ(state.saved()[0].name, "model.layers.2.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(state.saved()[1].name, "model.layers.2.mlp.gate.expert_shares");
}

TEST(RouterState, ASkippedStepChangesNothingAndIsNotCountedLater) {
  MoeCase c = moe_case("deepseek");
  c.config.moe.bias_update_speed = 0.25;
  run_threads(1, [&](Communicator& world) {
    Ctx ctx(1, "test");
    StepScalars stepped, skipped;
    skipped.skip = 1;
    const TestTensor first(DType::kF64, {1, 8}, {3, 1, 0, 0, 0, 0, 0, 0});
    const TestTensor second(DType::kF64, {1, 8}, {0, 0, 0, 0, 0, 0, 6, 2});
    RouterState state(c.config, DType::kF32), other(c.config, DType::kF32);
    for (RouterState* s : {&state, &other}) {
      s->count(ctx, 0, *first);
      s->finish_step(ctx, world, world, view_of(stepped));
    }
    const Values bias = to_doubles(state.bias(0)), shares = to_doubles(state.shares(0));
    state.count(ctx, 0, *second);
    state.finish_step(ctx, world, world, view_of(skipped));
    EXPECT_EQ(to_doubles(state.bias(0)), bias);
    EXPECT_EQ(to_doubles(state.shares(0)), shares);
    EXPECT_EQ(state.loads()[0].p99, 6.0) << "loads of the skipped step are still reported";
    for (RouterState* s : {&state, &other}) {
      s->count(ctx, 0, *first);
      s->finish_step(ctx, world, world, view_of(stepped));
    }
    EXPECT_EQ(to_doubles(state.bias(0)), to_doubles(other.bias(0)));
    EXPECT_NE(to_doubles(state.bias(0)), bias);
    EXPECT_EQ(to_doubles(state.shares(0)), to_doubles(other.shares(0)));
  });
}

}  // namespace
}  // namespace trireme::test::test_router_state
