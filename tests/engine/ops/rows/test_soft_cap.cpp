#include <cmath>

#include "engine/ops/rows/soft_cap.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_soft_cap {
namespace {

using Values = std::vector<double>;

constexpr double kCap = 1.7;

TEST(SoftCap, ForwardAndBackwardMatchTheFormula) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const DType sums = sum_dtype(dtype);
      const Values x = stored(dtype, normals("x", n, 3)), d = stored(dtype, normals("d", n));
      const Values y = stored(sums, normals("y", n, 0.5));
      Values want, want_d, ones(x.size(), 1.0);
      for (size_t i = 0; i < x.size(); ++i) {
        want.push_back(kCap * std::tanh(x[i] / kCap));
        want_d.push_back(d[i] * (1 - y[i] / kCap * (y[i] / kCap)));
      }
      const TestTensor in(dtype, {n}, x), capped(sums, {n}, y);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out(dtype, {n}), over(dtype, {n}, x), back(dtype, {n}, d);
        soft_cap_forward(ctx, out, in, kCap);
        EXPECT_EACH_CLOSE(out, want, tolerance(dtype));
        soft_cap_forward(ctx, over, over, kCap);
        EXPECT_SAME_BITS(*over, *out);
        soft_cap_backward(ctx, back, capped, kCap);
        EXPECT_WITHIN(back, want_d, ones, tolerance(dtype));
        return outputs(out, back);
      });
    }
}

TEST(SoftCap, GradientMatchesFiniteDifferences) {
  const Values x = normals("x", 30, 2), dy = normals("dy", 30);
  Ctx ctx(1, "test");
  const TestTensor y(DType::kF64, {30}), d(DType::kF64, {30}, dy);
  const auto value = [&](const Values& v) {
    soft_cap_forward(ctx, y, TestTensor(DType::kF64, {30}, v), kCap);
    return to_doubles(*y);
  };
  const Values want = finite_difference_gradient(value, x, dy);
  value(x);
  soft_cap_backward(ctx, d, y, kCap);
  EXPECT_LT(worst_relative(to_doubles(*d), want), finite_difference_tolerance());
}

TEST(SoftCap, OperandsAreChecked) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {4}), other(DType::kF32, {3}), wide(DType::kF64, {4});
  EXPECT_THROW(soft_cap_forward(ctx, x, other, 1), Error);
  EXPECT_THROW(soft_cap_forward(ctx, x, x, 0), Error);
  EXPECT_THROW(soft_cap_backward(ctx, x, wide, 1), Error);
  expect_plannable([&](Ctx& plan) { soft_cap_forward(plan, x, x, 1); }, {&x});
}

}  // namespace
}  // namespace trireme::test::test_soft_cap
