#include <cmath>

#include "engine/ops/attention/rotary.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_rotary {
namespace {

using Values = std::vector<double>;

constexpr double kBase = 10000.0;

// Rotates one head by definition.
void rotate(double* x, int64_t width, int64_t position, double direction,
            RotaryPairs pairs = RotaryPairs::kHalves) {
  for (int64_t i = 0; i < width / 2; ++i) {
    const double angle =
        direction * static_cast<double>(position) *
        std::pow(kBase, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    const bool halves = pairs == RotaryPairs::kHalves;
    double &u = halves ? x[i] : x[2 * i], &v = halves ? x[i + width / 2] : x[2 * i + 1];
    const double a = u, b = v;
    u = a * std::cos(angle) - b * std::sin(angle);
    v = b * std::cos(angle) + a * std::sin(angle);
  }
}

TestTensor table_for(DType dtype, int64_t positions, int64_t width) {
  TestTensor table(sum_dtype(dtype), {positions, width});
  rotary_table(table, plain_rotary_frequencies(kBase, width));
  return table;
}

TEST(Rotary, TableHoldsCosinesThenSines) {
  const int64_t positions = 50, width = 6;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const TestTensor table = table_for(dtype, positions, width);
    Values want;
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t c = 0; c < width; ++c) {
        const double exponent = -2.0 * static_cast<double>(c % 3) / 6.0;
        const double angle = static_cast<double>(p) * std::pow(kBase, exponent);
        want.push_back(c < 3 ? std::cos(angle) : std::sin(angle));
      }
    EXPECT_CLOSE(table, want, tolerance(dtype));
    EXPECT_TRUE(table.guards_intact());
  }
}

TEST(Rotary, TableHasAFactor) {
  const std::vector<double> frequencies = {0.5, 0.25};
  const TestTensor table(DType::kF64, {3, 4});
  rotary_table(table, frequencies, 1.5);
  Values want;
  for (const double p : {0.0, 1.0, 2.0})
    for (const double angle : {p * 0.5, p * 0.25, -p * 0.5, -p * 0.25})
      want.push_back(1.5 * (want.size() % 4 < 2 ? std::cos(angle) : std::sin(-angle)));
  EXPECT_CLOSE(table, want, tolerance(DType::kF64));
}

TEST(Rotary, RotatesAndRotatesBack) {
  const int64_t rows = 5, heads = 3, last = 999;
  const std::vector<int32_t> positions = {0, 1, 17, static_cast<int32_t>(last), 17};
  const auto check = [&](DType dtype, int64_t width, RotaryPairs pairs) {
    SCOPED_TRACE(concat(dtype, " ", width, pairs == RotaryPairs::kHalves ? "" : " interleaved"));
    const Shape shape{rows, heads, width};
    const Values x = stored(dtype, normals("x", shape.numel()));
    Values forward = x, backward = x;
    for (int64_t row = 0; row < rows * heads; ++row)
      for (double direction : {1.0, -1.0})
        rotate((direction > 0 ? forward : backward).data() + row * width, width,
               positions[static_cast<size_t>(row / heads)], direction, pairs);
    const TestTensor table = table_for(dtype, last + 1, width), tp({rows}, positions);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, shape, x), z(dtype, shape, x);
      rotary(ctx, y, table, tp, false, pairs);
      EXPECT_CLOSE(y, forward, tolerance(dtype));
      rotary(ctx, z, table, tp, true, pairs);
      EXPECT_CLOSE(z, backward, tolerance(dtype));
      rotary(ctx, z, table, tp, false, pairs);
      EXPECT_CLOSE(z, x, tolerance(dtype)) << "not rotated back";
      return outputs(y, z);
    });
  };
  for (DType dtype : kFloatTypes)
    for (int64_t width : {2, 14, 34, 64, 128})
      for (RotaryPairs pairs : {RotaryPairs::kHalves, RotaryPairs::kInterleaved})
        check(dtype, width, pairs);
}

TEST(Rotary, WorksOnSlicesOfPackedProjections) {
  const int64_t rows = 40, heads = 2, width = 64, row_width = 5 * width;
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < rows; ++t) positions.push_back(t);
  const Values all = normals("qkv", rows * row_width);
  Values want = all;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t h = 1; h < 1 + heads; ++h)
      rotate(want.data() + t * row_width + h * width, width, t, 1.0);
  const TestTensor table = table_for(DType::kF32, rows, width), tp({rows}, positions);
  for_each_kernel([&](Ctx& ctx) {
    TestTensor qkv(DType::kF32, {rows, row_width}, all);
    const Tensor part = qkv->slice(1, width, (1 + heads) * width).split_last(heads, width);
    rotary(ctx, part, table, tp, false);
    EXPECT_CLOSE(qkv, want, tolerance(DType::kF32));
    return outputs(qkv);
  });
}

TEST(Rotary, BackwardIsTheInverse) {
  const Shape shape{3, 2, 6};
  const TestTensor table = table_for(DType::kF64, 10, 6), tp({3}, std::vector<int32_t>{0, 4, 9});
  const Values x = normals("x", shape.numel()), dy = normals("dy", shape.numel());
  Ctx ctx(1, "test");
  const auto f = [&](const Values& v) {
    const TestTensor y(DType::kF64, shape, v);
    rotary(ctx, y, table, tp, false);
    return to_doubles(*y);
  };
  const TestTensor dx(DType::kF64, shape, dy);
  rotary(ctx, dx, table, tp, true);
  EXPECT_LT(worst_relative(to_doubles(*dx), finite_difference_gradient(f, x, dy)),
            finite_difference_tolerance());
}

TEST(Rotary, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 1, 6}), odd(DType::kF32, {2, 1, 5});
  const TestTensor table = table_for(DType::kF32, 10, 6);
  const TestTensor good({2}, std::vector<int32_t>{0, 9}), late({2}, std::vector<int32_t>{0, 10});
  const TestTensor negative({2}, std::vector<int32_t>{-1, 0});
  EXPECT_THROW(rotary(ctx, odd, table, good, false), Error);
  EXPECT_THROW(rotary(ctx, x, table, late, false), Error);
  EXPECT_THROW(rotary(ctx, x, table, negative, false), Error);
  EXPECT_THROW(rotary(ctx, x, TestTensor(DType::kF32, {10, 4}), good, false), Error);
  const std::vector<double> three(3, 0.5);
  EXPECT_THROW(rotary_table(TestTensor(DType::kF32, {10, 5}), three), Error);
  EXPECT_THROW(rotary_table(TestTensor(DType::kF32, {10, 8}), three), Error);
  EXPECT_THROW(rotary_table(TestTensor(DType::kBF16, {10, 6}), three), Error);
  EXPECT_THROW(plain_rotary_frequencies(0.0, 6), Error);
  EXPECT_THROW(plain_rotary_frequencies(kBase, 5), Error);
}

TEST(Rotary, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 1, 6}, normals("x", 12));
  const TestTensor table = table_for(DType::kF32, 10, 6), tp({2}, std::vector<int32_t>{0, 99});
  expect_plannable([&](Ctx& ctx) { rotary(ctx, x, table, tp, false); }, {&x});
}

}  // namespace
}  // namespace trireme::test::test_rotary
