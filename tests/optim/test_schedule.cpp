#include <gtest/gtest.h>

#include <cmath>

#include "optim/schedule.h"

namespace trireme::test_schedule {
namespace {

constexpr double kPeak = 1e-3;

SchedulerConfig make(DecayStyle style, int64_t warmup = 10, int64_t decay = 0, double min = 1e-4) {
  SchedulerConfig c;
  c.style = style;
  c.warmup_steps = warmup;
  c.decay_steps = decay;
  c.min_lr = min;
  return c;
}

TEST(Schedule, WarmUpIsLinearAndStartsAboveZero) {
  for (DecayStyle style : {DecayStyle::kConstant, DecayStyle::kLinear, DecayStyle::kCosine,
                           DecayStyle::kInverseSqrt, DecayStyle::kWsd}) {
    const SchedulerConfig c = make(style);
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 0, 100), kPeak / 10);
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 4, 100), kPeak / 2);
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 9, 100), kPeak);
  }
}

TEST(Schedule, WarmUpAlongALogarithmStartsAtZero) {
  SchedulerConfig c = make(DecayStyle::kConstant, 8);
  c.log_warmup = true;
  EXPECT_EQ(learning_rate(c, kPeak, 0, 100), 0);
  EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 1, 100), kPeak / 3);
  EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 3, 100), kPeak * 2 / 3);
  EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 7, 100), kPeak);
  EXPECT_EQ(learning_rate(c, kPeak, 8, 100), kPeak);
  c.warmup_steps = 1;  // DeepSpeed counts two
  EXPECT_EQ(learning_rate(c, kPeak, 0, 100), 0);
  EXPECT_EQ(learning_rate(c, kPeak, 1, 100), kPeak);
}

// Factors of DeepSpeed 0.18.2's own classes after 1, 2, ... 10 calls of step(), with
// total_num_steps 10 and cos_min_ratio 0.1.
struct DeepSpeedRates {
  DecayStyle style;
  bool log_warmup;
  int64_t warmup_num_steps;
  std::vector<double> rates;
};

TEST(Schedule, DeepSpeedsClassesAtEveryStep) {
  using enum DecayStyle;
  const double a = 0.792481250361, b = 0.939711431703, c = 0.160288568297;
  const std::vector<DeepSpeedRates> rows = {
      {kConstant, true, 4, {0, 0.5, a, 1, 1, 1, 1, 1, 1, 1}},
      {kConstant, false, 4, {0, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1}},
      {kLinear, true, 4, {0, 0.5, a, 1, 1, 5 / 6., 4 / 6., 0.5, 2 / 6., 1 / 6.}},
      {kLinear, false, 4, {0, 0.25, 0.5, 0.75, 1, 5 / 6., 4 / 6., 0.5, 2 / 6., 1 / 6.}},
      {kCosine, true, 4, {0, 0.5, a, 1, b, 0.775, 0.55, 0.325, c, 0.1}},
      {kCosine, false, 4, {0, 0.25, 0.5, 0.75, b, 0.775, 0.55, 0.325, c, 0.1}},
      {kConstant, true, 0, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
      {kLinear, false, 0, {0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125}},
      {kCosine,
       true,
       0,
       {0, 1, 0.96574578963, 0.868198051534, 0.722207544564, 0.55, 0.377792455436, 0.231801948466,
        0.13425421037, 0.1}}};
  for (const DeepSpeedRates& row : rows)
    for (int64_t step = 0; step < 10; ++step) {
      SchedulerConfig config =
          make(row.style, row.warmup_num_steps, 0, row.style == kCosine ? 0.1 * kPeak : 0);
      config.log_warmup = row.log_warmup;
      config.deepspeed = true;
      EXPECT_NEAR(learning_rate(config, kPeak, step, 10),
                  kPeak * row.rates[static_cast<size_t>(step)], 1e-12 * kPeak)
          << static_cast<int>(row.style) << " " << row.log_warmup << " step " << step;
    }
  SchedulerConfig after = make(kCosine, 4, 10);
  after.deepspeed = true;
  EXPECT_DOUBLE_EQ(learning_rate(after, kPeak, 15, 20), 1e-4);  // it does not increase again
}

TEST(Schedule, ConstantStays) {
  EXPECT_EQ(learning_rate(make(DecayStyle::kConstant), kPeak, 1000, 100), kPeak);
}

TEST(Schedule, LinearAndCosineMeetTheirEndsAndMiddle) {
  const SchedulerConfig linear = make(DecayStyle::kLinear), cosine = make(DecayStyle::kCosine);
  for (const SchedulerConfig& c : {linear, cosine}) {
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 10, 110), kPeak);
    EXPECT_NEAR(learning_rate(c, kPeak, 60, 110), (kPeak + 1e-4) / 2, 1e-12);
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 110, 110), 1e-4);
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 500, 110), 1e-4);  // never below
  }
  // After a quarter of the decay the cosine is still above the line.
  EXPECT_GT(learning_rate(cosine, kPeak, 35, 110), learning_rate(linear, kPeak, 35, 110));
}

TEST(Schedule, DecayStepsEndTheDecayBeforeTheRun) {
  const SchedulerConfig c = make(DecayStyle::kLinear, 0, 50);
  EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 50, 1000), 1e-4);
}

TEST(Schedule, InverseSqrtHalvesAtFourTimesTheWarmUp) {
  const SchedulerConfig c = make(DecayStyle::kInverseSqrt, 100, 0, 0);
  EXPECT_NEAR(learning_rate(c, kPeak, 399, 10000), kPeak / 2, 1e-15);
  EXPECT_EQ(learning_rate(make(DecayStyle::kInverseSqrt, 100, 0, 5e-4), kPeak, 1000000, 10), 5e-4);
}

TEST(Schedule, WsdHoldsThenDecaysInTheLastSteps) {
  for (WsdDecay shape :
       {WsdDecay::kLinear, WsdDecay::kCosine, WsdDecay::kExponential, WsdDecay::kMinusSqrt}) {
    SchedulerConfig c = make(DecayStyle::kWsd, 10, 20);
    c.wsd_decay = shape;
    EXPECT_DOUBLE_EQ(learning_rate(c, kPeak, 80, 100), kPeak);
    EXPECT_NEAR(learning_rate(c, kPeak, 100, 100), 1e-4, 1e-18);
    const double middle = learning_rate(c, kPeak, 90, 100);
    EXPECT_LT(middle, kPeak);
    EXPECT_GT(middle, 1e-4);
  }
  SchedulerConfig c = make(DecayStyle::kWsd, 0, 20);
  c.wsd_decay = WsdDecay::kMinusSqrt;
  EXPECT_NEAR(learning_rate(c, kPeak, 85, 100), 1e-4 + 9e-4 * 0.5, 1e-15);  // 1 - sqrt(1/4)
  c.wsd_decay = WsdDecay::kExponential;
  EXPECT_NEAR(learning_rate(c, kPeak, 90, 100), std::sqrt(kPeak * 1e-4), 1e-15);
}

}  // namespace
}  // namespace trireme::test_schedule
