#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "engine/ops/rows/activation.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_activation {
namespace {

using enum ActivationFunction;
using Values = std::vector<double>;

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

// As in the paper, with tanh; the kernels use another form.
double gelu_argument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double gelu(double x) { return x / 2 * (1 + std::tanh(gelu_argument(x))); }
double gelu_slope(double x) {
  const double t = std::tanh(gelu_argument(x));
  const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner;
}

// Values in both tails, where the functions are nearly 0 and nearly x.
Values inputs(DType dtype, const char* name, int64_t n) {
  return stored(dtype, normals(name, n, 3.0));
}

// Value and slope of a function at z, and the magnitude of the slope's terms, which cancel.
struct Formula {
  double value, slope, terms;
};
Formula formula(ActivationFunction f, double z) {
  if (f == kGelu) return {gelu(z), gelu_slope(z), 1 + std::abs(z)};
  const double s = sigmoid(z);
  return {z * s, s * (1 + z * (1 - s)), s * (1 + std::abs(z))};
}
// Scale of a value's error: where GELU vanishes its exponent is large and contributes its rounding
// to the result.
double value_scale(ActivationFunction f, double z) {
  const double value = std::abs(formula(f, z).value);
  return f == kGelu ? std::max(value, std::abs(z)) : value;
}

// Every function with its name.
void for_each_function(const std::function<void(ActivationFunction)>& body) {
  for (size_t f = 0; f < std::size(kActivationOps); ++f) {
    SCOPED_TRACE(kActivationOps[f].forward);
    body(static_cast<ActivationFunction>(f));
  }
}

TEST(Activation, ForwardAndBackwardMatchTheFormula) {
  for_each_function([](ActivationFunction f) {
    for (DType dtype : kFloatTypes)
      for (int64_t n : kOddSizes) {
        SCOPED_TRACE(concat(dtype, " ", n));
        const Values x = inputs(dtype, "x", n), dy = inputs(dtype, "dy", n);
        Values y = x, scale = x, dx = x, magnitude = x;
        for (size_t i = 0; i < x.size(); ++i) {
          const Formula want = formula(f, x[i]);
          y[i] = want.value;
          scale[i] = value_scale(f, x[i]);
          dx[i] = dy[i] * want.slope;
          magnitude[i] = std::abs(dy[i]) * want.terms;
        }
        const TestTensor tx(dtype, {n}, x), tdy(dtype, {n}, dy);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor ty(dtype, {n}), tdx(dtype, {n});
          activation_forward(ctx, f, ty, tx);
          EXPECT_WITHIN(ty, y, scale, tolerance(dtype));
          activation_backward(ctx, f, tdx, tdy, tx);
          EXPECT_WITHIN(tdx, dx, magnitude, tolerance(dtype));
          TestTensor over(dtype, {n}, x), over_dy(dtype, {n}, dy), over_x(dtype, {n}, x);
          activation_forward(ctx, f, over, over);
          EXPECT_SAME_BITS(*over, *ty);
          activation_backward(ctx, f, over_dy, over_dy, tx);
          EXPECT_SAME_BITS(*over_dy, *tdx);
          activation_backward(ctx, f, over_x, tdy, over_x);
          EXPECT_SAME_BITS(*over_x, *tdx);
          return outputs(ty, tdx);
        });
      }
  });
}

TEST(Activation, GradientMatchesFiniteDifferences) {
  const int64_t n = 33;
  const Values x = normals("x", n), dy = normals("dy", n);
  Ctx ctx(1, "test");
  for_each_function([&](ActivationFunction f) {
    const auto value = [&](const Values& v) {
      const TestTensor y(DType::kF64, {n});
      activation_forward(ctx, f, y, TestTensor(DType::kF64, {n}, v));
      return to_doubles(*y);
    };
    const TestTensor dx(DType::kF64, {n});
    activation_backward(ctx, f, dx, TestTensor(DType::kF64, {n}, dy),
                        TestTensor(DType::kF64, {n}, x));
    EXPECT_LT(worst_relative(to_doubles(*dx), finite_difference_gradient(value, x, dy)),
              finite_difference_tolerance());
  });
}

TEST(Gelu, TailsAreSane) {
  const Values x = {-1e30, -40, -5, 0.0, 40, 1e30, std::nan("")};
  const TestTensor tx(DType::kF32, {7}, x), ones(DType::kF32, {7}, Values(7, 1.0));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(DType::kF32, {7}), slope(DType::kF32, {7});
    activation_forward(ctx, kGelu, y, tx);
    activation_backward(ctx, kGelu, slope, ones, tx);
    const Values v = to_doubles(*y), s = to_doubles(*slope);
    EXPECT_EQ(v[0], 0.0);
    EXPECT_EQ(v[1], 0.0);
    // The exponent 2u, about -17, contributes its rounding to the result: 17 eps, plus 6 for exp.
    EXPECT_NEAR(v[2], gelu(-5), 23 * dtype_eps(DType::kF32) * std::abs(gelu(-5)));
    EXPECT_EQ(v[3], 0.0);
    EXPECT_EQ(v[4], 40.0);
    EXPECT_EQ(v[5], static_cast<double>(1e30f));
    EXPECT_TRUE(std::isnan(v[6]));
    EXPECT_EQ(s[1], 0.0);
    EXPECT_EQ(s[3], 0.5);
    EXPECT_EQ(s[4], 1.0);
    EXPECT_TRUE(std::isnan(s[6]));
    y->as<float>()[6] = slope->as<float>()[6] = 0.0f;  // NaN has many bit patterns
    return outputs(y, slope);
  });
}

TEST(Gated, ForwardAndBackwardMatchTheFormula) {
  const int64_t rows = 5;
  for_each_function([&](ActivationFunction f) {
    for (DType dtype : kFloatTypes)
      for (int64_t columns : kOddSizes) {
        SCOPED_TRACE(concat(dtype, " ", columns));
        const Shape narrow{rows, columns}, wide{rows, 2 * columns};
        const Values gate_up = inputs(dtype, "gate_up", wide.numel());
        const Values dy = inputs(dtype, "dy", narrow.numel());
        Values y = dy, y_magnitude = dy, d_gate_up = gate_up, magnitude = gate_up;
        const auto width = static_cast<size_t>(columns);
        for (size_t i = 0; i < dy.size(); ++i) {
          const size_t at = i / width * 2 * width + i % width, up = at + width;
          const double z = gate_up[at], u = gate_up[up];
          const Formula gate = formula(f, z);
          y[i] = gate.value * u;
          y_magnitude[i] = value_scale(f, z) * std::abs(u);
          d_gate_up[at] = dy[i] * u * gate.slope;
          magnitude[at] = std::abs(dy[i] * u) * gate.terms;
          d_gate_up[up] = dy[i] * gate.value;
          magnitude[up] = std::abs(dy[i]) * value_scale(f, z);
        }
        const TestTensor tg(dtype, wide, gate_up), tdy(dtype, narrow, dy);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor ty(dtype, narrow), td(dtype, wide), over(dtype, wide, gate_up);
          gated_forward(ctx, f, ty, tg);
          EXPECT_WITHIN(ty, y, y_magnitude, tolerance(dtype));
          gated_backward(ctx, f, td, tdy, tg);
          EXPECT_WITHIN(td, d_gate_up, magnitude, tolerance(dtype));
          gated_backward(ctx, f, over, tdy, over);
          EXPECT_SAME_BITS(*over, *td);
          return outputs(ty, td);
        });
      }
  });
}

TEST(Gated, GradientMatchesFiniteDifferences) {
  const Shape narrow{3, 7}, wide{3, 14};
  const Values gate_up = normals("gate_up", 42), dy = normals("dy", 21);
  Ctx ctx(1, "test");
  for_each_function([&](ActivationFunction f) {
    const auto value = [&](const Values& v) {
      const TestTensor y(DType::kF64, narrow);
      gated_forward(ctx, f, y, TestTensor(DType::kF64, wide, v));
      return to_doubles(*y);
    };
    const TestTensor d(DType::kF64, wide);
    gated_backward(ctx, f, d, TestTensor(DType::kF64, narrow, dy),
                   TestTensor(DType::kF64, wide, gate_up));
    EXPECT_LT(worst_relative(to_doubles(*d), finite_difference_gradient(value, gate_up, dy)),
              finite_difference_tolerance());
  });
}

TEST(BiasBackward, SumsTheRows) {
  for (DType dtype : kFloatTypes)
    for (int64_t rows : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{1000}})
      for (int64_t columns : {int64_t{1}, int64_t{7}, int64_t{127}})
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(concat(dtype, " ", rows, " x ", columns, " accumulate ", accumulate));
          const DType sums = sum_dtype(dtype);
          const Values dy = stored(dtype, normals("dy", rows * columns));
          const Values before = stored(sums, normals("before", columns));
          Values want = accumulate ? before : Values(static_cast<size_t>(columns), 0.0);
          for (size_t i = 0; i < dy.size(); ++i) want[i % static_cast<size_t>(columns)] += dy[i];
          const TestTensor tdy(dtype, {rows, columns}, dy);
          // A sum of `rows` values may cancel: its scale is their random walk.
          const Values scale(want.size(), std::sqrt(static_cast<double>(rows) + 1));
          for_each_kernel([&](Ctx& ctx) {
            TestTensor db(sums, {columns}, before);
            bias_backward(ctx, db, tdy, accumulate);
            EXPECT_WITHIN(db, want, scale, tolerance(sums, rows));
            return outputs(db);
          });
        }
}

TEST(Activation, PlanningWritesNothing) {
  const TestTensor wide(DType::kF32, {2, 6}, normals("wide", 12)), x(DType::kF32, {2, 3});
  const TestTensor y(DType::kF32, {2, 3}, normals("y", 6)), db(DType::kF32, {3});
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& ctx) {
        for_each_function([&](ActivationFunction f) {
          activation_forward(ctx, f, y, x);
          activation_backward(ctx, f, y, x, x);
          gated_forward(ctx, f, y, wide);
          gated_backward(ctx, f, wide, x, wide);
        });
        bias_backward(ctx, db, x, false);
      },
      {&y, &wide, &db});
  EXPECT_EQ(std::ssize(plan.blocks), 1) << "the partial sums of bias_backward";
}

TEST(Activation, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor a(DType::kF32, {2, 3}), b(DType::kF32, {2, 4}), c(DType::kF64, {3});
  for_each_function([&](ActivationFunction f) {
    EXPECT_THROW(activation_forward(ctx, f, a, b), Error);
    EXPECT_THROW(activation_backward(ctx, f, a, b, a), Error);
    EXPECT_THROW(gated_forward(ctx, f, a, b), Error);
    EXPECT_THROW(gated_backward(ctx, f, b, a, b), Error);
  });
  EXPECT_THROW(bias_backward(ctx, c, a, false), Error);
}

}  // namespace
}  // namespace trireme::test::test_activation
