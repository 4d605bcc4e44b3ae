// Scaled rotary frequencies compared with values that HuggingFace's transformers computed in
// float32 (ROPE_INIT_FUNCTIONS of version 5.23).
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/ops/attention/rotary.h"
#include "transformer/config/rope.h"

namespace trireme::test_rope {
namespace {

using Picks = std::vector<std::pair<size_t, double>>;

void expect_picks(const RotaryFrequencies& got, const Picks& want, double factor) {
  for (const auto& [i, value] : want)
    EXPECT_NEAR(got.inverse.at(i), value, 1e-6 * value) << "frequency " << i;
  EXPECT_NEAR(got.attention_factor, factor, 1e-8);
}

TEST(Rope, DefaultIsThePapers) {
  const RotaryFrequencies got = rotary_frequencies(10000, 16, {}, 64, 1000);
  EXPECT_EQ(got.inverse, plain_rotary_frequencies(10000, 16));
  EXPECT_EQ(got.attention_factor, 1);
}

// A list for sequences up to the original length, one for longer ones.
TEST(Rope, LongRope) {
  RopeScaling s{.type = RopeType::kLongRope, .factor = 4, .original_positions = 16};
  s.short_factors = {1, 2};
  s.long_factors = {4, 8};
  for (const int64_t length : {0, 16}) {
    const RotaryFrequencies got = rotary_frequencies(10000, 4, s, 64, length);
    EXPECT_EQ(got.inverse, (std::vector<double>{1, 0.005}));
    EXPECT_NEAR(got.attention_factor, std::sqrt(1.5), 1e-12);  // 1 + ln 4 / ln 16
  }
  s.attention_factor = 1.25;
  const RotaryFrequencies got = rotary_frequencies(10000, 4, s, 64, 17);
  EXPECT_EQ(got.inverse, (std::vector<double>{0.25, 0.00125}));
  EXPECT_EQ(got.attention_factor, 1.25);
  s.attention_factor = 0;
  s.factor = 1;
  EXPECT_EQ(rotary_frequencies(10000, 4, s, 16, 0).attention_factor, 1);
  s.long_factors = {1};
  EXPECT_THROW(rotary_frequencies(10000, 4, s, 64, 17), Error);
}

TEST(Rope, Linear) {
  const RopeScaling s{.type = RopeType::kLinear, .factor = 4};
  expect_picks(rotary_frequencies(10000, 16, s, 64, 0),
               {{0, 0.25}, {1, 0.079056941}, {7, 7.9056947e-05}}, 1);
}

TEST(Rope, DynamicActsBeyondTheModelsPositions) {
  const RopeScaling s{.type = RopeType::kDynamic, .factor = 2};
  expect_picks(rotary_frequencies(10000, 16, s, 24, 41),
               {{0, 1}, {1, 0.2787756}, {7, 0.00013085286}}, 1);
  for (const int64_t length : {0, 11, 24})
    EXPECT_EQ(rotary_frequencies(10000, 16, s, 24, length).inverse,
              plain_rotary_frequencies(10000, 16));
}

TEST(Rope, Llama3) {
  const RopeScaling s{.type = RopeType::kLlama3,
                      .factor = 8,
                      .original_positions = 8192,
                      .low_frequency_factor = 1,
                      .high_frequency_factor = 4};
  expect_picks(rotary_frequencies(500000, 128, s, 131072, 0),
               {{0, 1},
                {20, 0.016560441},
                {28, 0.0032114461},
                {30, 0.0013718937},
                {32, 0.00052484602},
                {34, 0.00017850779},
                {36, 7.7846555e-05},
                {50, 4.4115345e-06},
                {63, 3.0689259e-07}},
               1);
}

TEST(Rope, Yarn) {
  const RopeScaling plain{.type = RopeType::kYarn, .factor = 4, .original_positions = 32768};
  expect_picks(rotary_frequencies(1000000, 128, plain, 32768, 0),
               {{0, 1},
                {20, 0.013335215},
                {25, 0.0041317381},
                {30, 0.001064361},
                {35, 0.00024625839},
                {40, 4.4456985e-05},
                {45, 1.5107409e-05},
                {63, 3.1023444e-07}},
               1.13862944);
  const RopeScaling scales{.type = RopeType::kYarn,
                           .factor = 40,
                           .original_positions = 4096,
                           .mscale = 0.707,
                           .mscale_all_dim = 1};
  expect_picks(rotary_frequencies(10000, 64, scales, 163840, 0),
               {{0, 1},
                {9, 0.074989416},
                {11, 0.039006926},
                {15, 0.0083345091},
                {20, 0.00079056941},
                {31, 3.3338035e-06}},
               0.921042355);
}

TEST(Rope, YarnWithEveryKeyGiven) {
  const RopeScaling s{.type = RopeType::kYarn,
                      .factor = 32,
                      .original_positions = 4096,
                      .attention_factor = 1.25,
                      .beta_fast = 16,
                      .beta_slow = 2,
                      .truncate = false};
  expect_picks(rotary_frequencies(10000, 64, s, 131072, 0),
               {{9, 0.074989416},
                {11, 0.042169649},
                {15, 0.0095453123},
                {18, 0.0017631239},
                {20, 0.0001434289},
                {31, 4.1672547e-06}},
               1.25);
}

TEST(Rope, KnowsTheLongestSequence) {
  EXPECT_EQ(longest_sequence(RopeScaling{}, 100), 100);
  EXPECT_EQ(longest_sequence({.type = RopeType::kLinear, .factor = 2.5}, 100), 250);
  EXPECT_EQ(longest_sequence({.type = RopeType::kDynamic, .factor = 2}, 100), 200);
  const RopeScaling yarn{.type = RopeType::kYarn, .factor = 4, .original_positions = 50};
  EXPECT_EQ(longest_sequence(yarn, 100), 200);
  EXPECT_EQ(longest_sequence(yarn, 300), 300);
  EXPECT_EQ(longest_sequence({.type = RopeType::kLlama3, .factor = 8}, 100), 100);
  EXPECT_EQ(longest_sequence({.type = RopeType::kLinear, .factor = 1e30}, 100), int64_t{1} << 62);
}

TEST(Rope, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(rotary_frequencies(10000, 2, {.type = RopeType::kDynamic, .factor = 2}, 10, 20),
               Error);
  EXPECT_THROW(rotary_frequencies(10000, 8, {}, 0, 0), Error);
}

}  // namespace
}  // namespace trireme::test_rope
