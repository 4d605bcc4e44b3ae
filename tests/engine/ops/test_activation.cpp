#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/ops/activation.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_activation {
namespace {

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

TEST(Gelu, ForwardAndBackwardMatchTheFormula) {
  for (DType dtype : kFloatTypes)
    for (int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const Values x = inputs(dtype, "x", n), dy = inputs(dtype, "dy", n);
      Values y = x, dx = x, magnitude = x;
      for (size_t i = 0; i < x.size(); ++i) {
        y[i] = gelu(x[i]);
        dx[i] = dy[i] * gelu_slope(x[i]);
        magnitude[i] = std::abs(dy[i]) * (1 + std::abs(x[i]));  // the slope's terms cancel
      }
      const TestTensor tx(dtype, {n}, x), tdy(dtype, {n}, dy);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor ty(dtype, {n}), tdx(dtype, {n});
        gelu_forward(ctx, ty, tx);
        EXPECT_CLOSE(ty, y, tolerance(dtype));
        gelu_backward(ctx, tdx, tdy, tx);
        EXPECT_WITHIN(tdx, dx, magnitude, tolerance(dtype));
        TestTensor over(dtype, {n}, x), over_dy(dtype, {n}, dy), over_x(dtype, {n}, x);
        gelu_forward(ctx, over, over);
        EXPECT_SAME_BITS(*over, *ty);
        gelu_backward(ctx, over_dy, over_dy, tx);
        EXPECT_SAME_BITS(*over_dy, *tdx);
        gelu_backward(ctx, over_x, tdy, over_x);
        EXPECT_SAME_BITS(*over_x, *tdx);
        return outputs(ty, tdx);
      });
    }
}

TEST(Gelu, GradientMatchesFiniteDifferences) {
  const int64_t n = 33;
  const Values x = normals("x", n), dy = normals("dy", n);
  Ctx ctx(1, "test");
  const auto f = [&](const Values& v) {
    const TestTensor y(DType::kF64, {n});
    gelu_forward(ctx, y, TestTensor(DType::kF64, {n}, v));
    return to_doubles(*y);
  };
  const TestTensor dx(DType::kF64, {n});
  gelu_backward(ctx, dx, TestTensor(DType::kF64, {n}, dy), TestTensor(DType::kF64, {n}, x));
  EXPECT_LT(worst_relative(to_doubles(*dx), finite_difference_gradient(f, x, dy)),
            finite_difference_tolerance());
}

TEST(Gelu, TailsAreSane) {
  const Values x = {-1e30, -40, -5, 0.0, 40, 1e30, std::nan("")};
  const TestTensor tx(DType::kF32, {7}, x), ones(DType::kF32, {7}, Values(7, 1.0));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(DType::kF32, {7}), slope(DType::kF32, {7});
    gelu_forward(ctx, y, tx);
    gelu_backward(ctx, slope, ones, tx);
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

// Value and slope of a gate, and the magnitude of the slope's terms, which cancel.
struct Gate {
  double value, slope, terms;
};
using GatedForward = void (*)(Ctx&, const Tensor&, const ConstTensor&);
using GatedBackward = void (*)(Ctx&, const Tensor&, const ConstTensor&, const ConstTensor&);
struct GatedCase {
  const char* name;
  Gate (*gate)(double z);
  GatedForward forward;
  GatedBackward backward;
};
const GatedCase kGated[] = {{"silu",
                             [](double z) {
                               const double s = sigmoid(z);
                               return Gate{z * s, s * (1 + z * (1 - s)), s * (1 + std::abs(z))};
                             },
                             silu_gated_forward, silu_gated_backward},
                            {"gelu",
                             [](double z) {
                               return Gate{gelu(z), gelu_slope(z), 1 + std::abs(z)};
                             },
                             gelu_gated_forward, gelu_gated_backward}};

TEST(Gated, ForwardAndBackwardMatchTheFormula) {
  const int64_t rows = 5;
  for (const GatedCase& c : kGated)
    for (DType dtype : kFloatTypes)
      for (int64_t columns : kOddSizes) {
        SCOPED_TRACE(concat(c.name, " ", dtype, " ", columns));
        const Shape narrow{rows, columns}, wide{rows, 2 * columns};
        const Values gate_up = inputs(dtype, "gate_up", wide.numel());
        const Values dy = inputs(dtype, "dy", narrow.numel());
        Values y = dy, y_magnitude = dy, d_gate_up = gate_up, magnitude = gate_up;
        const auto f = static_cast<size_t>(columns);
        for (size_t i = 0; i < dy.size(); ++i) {
          const size_t at = i / f * 2 * f + i % f, up = at + f;
          const double u = gate_up[up];
          const Gate g = c.gate(gate_up[at]);
          // Where GELU vanishes its exponent is large and contributes its rounding to the result.
          const double least = c.forward == gelu_gated_forward ? std::abs(gate_up[at]) : 0.0;
          y[i] = g.value * u;
          y_magnitude[i] = std::max(std::abs(g.value), least) * std::abs(u);
          d_gate_up[at] = dy[i] * u * g.slope;
          magnitude[at] = std::abs(dy[i] * u) * g.terms;
          d_gate_up[up] = dy[i] * g.value;
          magnitude[up] = std::abs(dy[i]) * std::max(std::abs(g.value), least);
        }
        const TestTensor tg(dtype, wide, gate_up), tdy(dtype, narrow, dy);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor ty(dtype, narrow), td(dtype, wide), over(dtype, wide, gate_up);
          c.forward(ctx, ty, tg);
          EXPECT_WITHIN(ty, y, y_magnitude, tolerance(dtype));
          c.backward(ctx, td, tdy, tg);
          EXPECT_WITHIN(td, d_gate_up, magnitude, tolerance(dtype));
          c.backward(ctx, over, tdy, over);
          EXPECT_SAME_BITS(*over, *td);
          return outputs(ty, td);
        });
      }
}

TEST(Gated, GradientMatchesFiniteDifferences) {
  const Shape narrow{3, 7}, wide{3, 14};
  const Values gate_up = normals("gate_up", 42), dy = normals("dy", 21);
  Ctx ctx(1, "test");
  for (const GatedCase& c : kGated) {
    const auto f = [&](const Values& v) {
      const TestTensor y(DType::kF64, narrow);
      c.forward(ctx, y, TestTensor(DType::kF64, wide, v));
      return to_doubles(*y);
    };
    const TestTensor d(DType::kF64, wide);
    c.backward(ctx, d, TestTensor(DType::kF64, narrow, dy), TestTensor(DType::kF64, wide, gate_up));
    EXPECT_LT(worst_relative(to_doubles(*d), finite_difference_gradient(f, gate_up, dy)),
              finite_difference_tolerance())
        << c.name;
  }
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
        gelu_forward(ctx, y, x);
        gelu_backward(ctx, y, x, x);
        silu_gated_forward(ctx, y, wide);
        silu_gated_backward(ctx, wide, x, wide);
        gelu_gated_forward(ctx, y, wide);
        gelu_gated_backward(ctx, wide, x, wide);
        bias_backward(ctx, db, x, false);
      },
      {&y, &wide, &db});
  EXPECT_EQ(std::ssize(plan.blocks), 1) << "the partial sums of bias_backward";
}

TEST(Activation, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor a(DType::kF32, {2, 3}), b(DType::kF32, {2, 4}), c(DType::kF64, {3});
  EXPECT_THROW(gelu_forward(ctx, a, b), Error);
  EXPECT_THROW(silu_gated_forward(ctx, a, b), Error);
  EXPECT_THROW(silu_gated_backward(ctx, b, a, b), Error);
  EXPECT_THROW(gelu_gated_forward(ctx, a, b), Error);
  EXPECT_THROW(gelu_gated_backward(ctx, b, a, b), Error);
  EXPECT_THROW(bias_backward(ctx, c, a, false), Error);
}

}  // namespace
}  // namespace trireme::test::test_activation
