#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "training/data/blend.h"

namespace trireme::test_blend {
namespace {

TEST(Blend, FollowsTheFormula) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> weights(1 + random() % 6);
    for (double& weight : weights) weight = 1 + static_cast<double>(random() % 9);
    weights = normalize_weights(weights);
    const BlendIndex index = build_blend_index(weights, 300);
    std::vector<int64_t> drawn(weights.size(), 0);
    for (size_t t = 0; t < 300; ++t) {
      const auto owed = [&](size_t d) {
        return weights[d] * (t > 1 ? static_cast<double>(t) : 1.0) - static_cast<double>(drawn[d]);
      };
      const size_t chosen = index.dataset[t];
      for (size_t d = 0; d < weights.size(); ++d) {
        EXPECT_LE(owed(d), owed(chosen));
        if (d < chosen) {
          EXPECT_LT(owed(d), owed(chosen));
        }
      }
      EXPECT_EQ(index.sample[t], drawn[chosen]++);
    }
    for (size_t d = 0; d < weights.size(); ++d) {
      EXPECT_NEAR(static_cast<double>(drawn[d]), 300 * weights[d],
                  static_cast<double>(weights.size()));
    }
  }
}

TEST(Blend, SizesAreRoundedUpTwice) {
  const BlendSizes sizes = blend_sizes({0.3, 0.7}, 1001);
  EXPECT_EQ(sizes.build, (std::vector<int64_t>{303, 705}));  // ceil(301*1.005), ceil(701*1.005)
  EXPECT_EQ(sizes.total, 301 + 701);
}

TEST(Blend, WeightsAreSummedAsNumpyDoes) {
  for (const size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{20}, size_t{129}, size_t{300}}) {
    std::vector<double> weights(n);
    for (size_t i = 0; i < n; ++i) weights[i] = 1.0 / static_cast<double>(i + 3);
    const std::vector<double> normalized = normalize_weights(weights);
    EXPECT_NEAR(std::accumulate(normalized.begin(), normalized.end(), 0.0), 1.0, 1e-14) << n;
  }
  // Printed by numpy: (w / w.sum())[0] for w[i] = 1 / (i + 3). A plain loop differs in the last
  // digits.
  const auto first = [](size_t n) {
    std::vector<double> weights(n);
    for (size_t i = 0; i < n; ++i) weights[i] = 1.0 / static_cast<double>(i + 3);
    return normalize_weights(weights)[0];
  };
  EXPECT_EQ(first(20), 0.15215050087006496);
  EXPECT_EQ(first(100), 0.08991797179854545);
  EXPECT_EQ(first(500), 0.06293094161098348);
}

}  // namespace
}  // namespace trireme::test_blend
