#include <algorithm>
#include <cmath>

#include "engine/ops/rows/clamped_gate.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_clamped_gate {
namespace {

using Values = std::vector<double>;

constexpr ClampedGate kGate{.limit = 0.9, .slope = 1.3, .up_offset = 0.5};

// One element, and the sizes of the terms that its gradients are sums of.
struct Element {
  double y, d_gate, d_up, gate_terms;
};
Element element(double z, double w, double d) {
  const double g = std::min(z, kGate.limit), u = std::clamp(w, -kGate.limit, kGate.limit);
  const double s = 1 / (1 + std::exp(-kGate.slope * g)), up = u + kGate.up_offset;
  const double second = kGate.slope * g * s * (1 - s);
  return {g * s * up, z > kGate.limit ? 0 : d * up * (s + second),
          std::abs(w) > kGate.limit ? 0 : d * g * s,
          std::abs(d) * (std::abs(u) + kGate.up_offset) * (s + std::abs(second))};
}

TEST(ClampedGate, ForwardAndBackwardMatchTheFormula) {
  const int64_t rows = 5;
  for (const DType dtype : kFloatTypes)
    for (const int64_t columns : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", columns));
      const Shape narrow{rows, columns}, wide{rows, 2 * columns};
      const Values gate_up = stored(dtype, normals("gate_up", wide.numel())),
                   dy = stored(dtype, normals("dy", narrow.numel()));
      Values y = dy, y_scale = dy, d_gate_up = gate_up, d_scale = gate_up;
      const auto width = static_cast<size_t>(columns);
      for (size_t i = 0; i < dy.size(); ++i) {
        const size_t gate = i / width * 2 * width + i % width, up = gate + width;
        const Element e = element(gate_up[gate], gate_up[up], dy[i]);
        y[i] = e.y;
        y_scale[i] = 1;  // operands are at most the limit
        d_gate_up[gate] = e.d_gate;
        d_scale[gate] = e.gate_terms;
        d_gate_up[up] = e.d_up;
        d_scale[up] = std::abs(dy[i]);
      }
      const TestTensor in(dtype, wide, gate_up), d(dtype, narrow, dy);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out(dtype, narrow), back(dtype, wide), over(dtype, wide, gate_up);
        clamped_gate_forward(ctx, kGate, out, in);
        EXPECT_WITHIN(out, y, y_scale, tolerance(dtype));
        clamped_gate_backward(ctx, kGate, back, d, in);
        EXPECT_WITHIN(back, d_gate_up, d_scale, tolerance(dtype));
        clamped_gate_backward(ctx, kGate, over, d, over);
        EXPECT_SAME_BITS(*over, *back);
        return outputs(out, back);
      });
    }
}

TEST(ClampedGate, GradientMatchesFiniteDifferences) {
  const Shape narrow{3, 7}, wide{3, 14};
  const Values gate_up = normals("gate_up", 42), dy = normals("dy", 21);
  Ctx ctx(1, "test");
  const auto value = [&](const Values& v) {
    const TestTensor y(DType::kF64, narrow);
    clamped_gate_forward(ctx, kGate, y, TestTensor(DType::kF64, wide, v));
    return to_doubles(*y);
  };
  const TestTensor d(DType::kF64, wide);
  clamped_gate_backward(ctx, kGate, d, TestTensor(DType::kF64, narrow, dy),
                        TestTensor(DType::kF64, wide, gate_up));
  EXPECT_LT(worst_relative(to_doubles(*d), finite_difference_gradient(value, gate_up, dy)),
            finite_difference_tolerance());
  EXPECT_TRUE(std::ranges::count(to_doubles(*d), 0.0) > 5) << "operands beyond the limit";
}

TEST(ClampedGate, OperandsAreChecked) {
  Ctx ctx(1, "test");
  const TestTensor y(DType::kF32, {2, 3}), wide(DType::kF32, {2, 6}), other(DType::kF32, {2, 4});
  EXPECT_THROW(clamped_gate_forward(ctx, kGate, y, other), Error);
  EXPECT_THROW(clamped_gate_backward(ctx, kGate, other, y, wide), Error);
  EXPECT_THROW(clamped_gate_forward(ctx, {.limit = 0}, y, wide), Error);
  expect_plannable([&](Ctx& plan) { clamped_gate_forward(plan, kGate, y, wide); }, {&y});
}

}  // namespace
}  // namespace trireme::test::test_clamped_gate
