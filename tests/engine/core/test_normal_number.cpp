#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/normal_number.h"

namespace trireme::test_normal_number {
namespace {

TEST(Normal, HasTheMomentsOfANormalDistribution) {
  const int n = 200'000;
  double sum = 0, square = 0, fourth = 0, product = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    const double x = philox_normal({1, stream_id("normal")}, static_cast<uint64_t>(i));
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
    product += x * before;  // neighbours share a block and must not be correlated
    before = x;
  }
  // Standard deviations of these means: 1, sqrt(2), sqrt(96), 1 over sqrt(n).
  const double unit = 4 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(sum / n, 0.0, unit);
  EXPECT_NEAR(square / n, 1.0, unit * std::sqrt(2.0));
  EXPECT_NEAR(fourth / n, 3.0, unit * std::sqrt(96.0));
  EXPECT_NEAR(product / n, 0.0, unit);
}

}  // namespace
}  // namespace trireme::test_normal_number
