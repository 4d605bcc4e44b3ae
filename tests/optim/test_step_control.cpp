#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "optim/step_control.h"

namespace trireme::test_step_control {
namespace {

class Decider {
 public:
  explicit Decider(DType dtype, const LossScaleConfig& config = {}) {
    state = initial_step_state(dtype, config);
    decision.loss_scale = config;
    decision.learning_rate = 0.5;
  }
  StepScalars decide(double sum_of_squares, double loss = 1.0) {
    StepScalars scalars;
    Ctx ctx(1, "step control");
    decide_step(ctx, Tensor(&scalars, DType::kU8, Shape{kStepScalarsBytes}),
                Tensor(&state, DType::kU8, Shape{kStepStateBytes}),
                Tensor(&sum_of_squares, DType::kF64, Shape{1}),
                Tensor(&loss, DType::kF64, Shape{1}), decision);
    return scalars;
  }
  StepState state;
  StepDecision decision;
};

TEST(StepControl, ClipsOnlyAboveTheLimit) {
  Decider d(DType::kF32);
  d.decision.clip = 1.0;
  EXPECT_DOUBLE_EQ(d.decide(0.25).grad_multiplier, 1.0);
  EXPECT_DOUBLE_EQ(d.decide(16.0).grad_multiplier, 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(d.state.grad_norm, 4.0);
  d.decision.clip = 0;
  EXPECT_DOUBLE_EQ(d.decide(16.0).grad_multiplier, 1.0);
}

TEST(StepControl, CountsUpdatesFromOne) {
  Decider d(DType::kF32);
  EXPECT_EQ(d.decide(1.0).count, 1);
  EXPECT_EQ(d.decide(1.0).count, 2);
  EXPECT_DOUBLE_EQ(d.decide(1.0).learning_rate, 0.5);
}

TEST(StepControl, NonFiniteNormOrLossSkipsAndCounts) {
  const double bad[] = {std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN()};
  for (double value : bad) {
    Decider d(DType::kF32);
    EXPECT_NE(d.decide(value).skip, 0);
    EXPECT_NE(d.decide(1.0, value).skip, 0);
    EXPECT_EQ(d.state.skipped, 2);
    EXPECT_EQ(d.state.consecutive_skips, 2);
    EXPECT_EQ(d.state.updates, 0);
    EXPECT_EQ(d.decide(1.0).skip, 0);
    EXPECT_EQ(d.state.consecutive_skips, 0);
    EXPECT_EQ(d.state.skipped, 2);
  }
}

TEST(StepControl, LossScaleIsDividedOut) {
  LossScaleConfig config;
  config.static_scale = 128;
  Decider d(DType::kF16, config);
  d.decision.clip = 0;
  const StepScalars s = d.decide(128.0 * 128.0 * 9.0);
  EXPECT_DOUBLE_EQ(d.state.grad_norm, 3.0);
  EXPECT_DOUBLE_EQ(s.grad_multiplier, 1.0 / 128.0);
}

TEST(StepControl, OnlyFloat16IsScaled) {
  EXPECT_EQ(initial_step_state(DType::kBF16, {}).loss_scale, 1.0);
  EXPECT_EQ(initial_step_state(DType::kF16, {}).loss_scale, 65536.0);
}

TEST(StepControl, DynamicScaleHalvesAfterHysteresisAndGrowsAfterTheWindow) {
  LossScaleConfig config;
  config.window = 3;
  config.hysteresis = 2;
  Decider d(DType::kF16, config);
  d.decision.dynamic_scale = true;
  const double overflow = std::numeric_limits<double>::infinity();
  d.decide(overflow);
  EXPECT_EQ(d.state.loss_scale, 65536.0);  // one is tolerated
  d.decide(overflow);
  EXPECT_EQ(d.state.loss_scale, 32768.0);
  d.decide(overflow);
  EXPECT_EQ(d.state.loss_scale, 16384.0);
  for (int i = 0; i < 3; ++i) d.decide(1.0);
  EXPECT_EQ(d.state.loss_scale, 32768.0);
  d.decide(overflow);  // the hysteresis was restored
  EXPECT_EQ(d.state.loss_scale, 32768.0);
}

TEST(StepControl, DynamicScaleStaysAboveItsMinimum) {
  LossScaleConfig config;
  config.initial_scale_power = 1;
  config.hysteresis = 1;
  config.min_scale = 1.0;
  Decider d(DType::kF16, config);
  d.decision.dynamic_scale = true;
  for (int i = 0; i < 5; ++i) d.decide(std::numeric_limits<double>::infinity());
  EXPECT_EQ(d.state.loss_scale, 1.0);
}

}  // namespace
}  // namespace trireme::test_step_control
