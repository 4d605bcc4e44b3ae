#include <cmath>

#include "engine/ops/norm/divided_norm.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_divided_norm {
namespace {

using Values = std::vector<double>;

constexpr double kEps = 1e-5;

// RMSNorm of whole rows, in float64.
struct Plain {
  Values sums, y, rstd, dots, dx, dw;
};

Plain plain(int64_t width, const Values& x, const Values& w, const Values& dy) {
  const auto d = static_cast<size_t>(width);
  Plain out{.sums = {}, .y = x, .rstd = {}, .dots = {}, .dx = dy, .dw = Values(d, 0.0)};
  for (size_t at = 0; at < x.size(); at += d) {
    double squares = 0, dot = 0;
    for (size_t c = 0; c < d; ++c) squares += x[at + c] * x[at + c];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (size_t c = 0; c < d; ++c) {
      const double n = x[at + c] * rstd;
      out.y[at + c] = n * w[c];
      out.dw[c] += dy[at + c] * n;
      dot += dy[at + c] * w[c] * n;
    }
    for (size_t c = 0; c < d; ++c)
      out.dx[at + c] =
          rstd * (dy[at + c] * w[c] - x[at + c] * rstd * dot / static_cast<double>(width));
    out.sums.push_back(squares);
    out.rstd.push_back(rstd);
    out.dots.push_back(dot);
  }
  return out;
}

Values sum_of(const Values& a, const Values& b) {
  Values out = a;
  for (size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

// Two ranks, whose columns are slices of one matrix, compute what one rank would.
TEST(DividedNorm, TheRanksColumnsAreThoseOfWholeRows) {
  const int64_t rows = 37;
  for (const DType dtype : kFloatTypes)
    for (const int64_t width : {5, 7, 16, 65, 260}) {
      SCOPED_TRACE(concat(dtype, " ", width));
      const int64_t cut = width / 3 + 1;
      const Shape shape{rows, width}, row{rows};
      const Values x = stored(dtype, normals("x", shape.numel())),
                   dy = stored(dtype, normals("dy", shape.numel())),
                   w = stored(dtype, normals("w", width));
      const Plain want = plain(width, x, w, dy);
      const DType wide = sum_dtype(dtype);
      const TestTensor in(dtype, shape, x), weight(dtype, {width}, w);
      const TestTensor exact_rstd(wide, row, want.rstd), exact_dots(wide, row, want.dots);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, shape), d(dtype, shape, dy), rstd(wide, row),
            dw(wide, {width}, want.dw);
        TestTensor sums[] = {TestTensor(wide, row), TestTensor(wide, row)};
        TestTensor dots[] = {TestTensor(wide, row), TestTensor(wide, row)};
        const std::pair<int64_t, int64_t> parts[] = {{0, cut}, {cut, width}};
        const auto part = [](const auto& t, int64_t begin, int64_t end) {
          return t->slice(t->rank() - 1, begin, end);
        };
        for (size_t r = 0; r < 2; ++r)
          square_sums(ctx, sums[r], part(in, parts[r].first, parts[r].second));
        const Values total = sum_of(to_doubles(sums[0]), to_doubles(sums[1]));
        EXPECT_CLOSE(TestTensor(wide, row, total), want.sums, tolerance(wide, width));
        const TestTensor all(wide, row, total);
        for (size_t r = 0; r < 2; ++r) {
          const auto [begin, end] = parts[r];
          divided_norm_forward(ctx, part(y, begin, end), rstd, part(in, begin, end),
                               part(weight, begin, end), all, width, kEps);
          divided_norm_backward_weight(ctx, dots[r], part(dw, begin, end), part(d, begin, end),
                                       part(in, begin, end), part(weight, begin, end), exact_rstd,
                                       true);
          divided_norm_backward_input(ctx, part(d, begin, end), part(d, begin, end),
                                      part(in, begin, end), part(weight, begin, end), exact_rstd,
                                      exact_dots, width);
        }
        EXPECT_CLOSE(y, want.y, tolerance(dtype, width));
        EXPECT_CLOSE(rstd, want.rstd, tolerance(wide, width));
        const Values both = sum_of(to_doubles(dots[0]), to_doubles(dots[1]));
        EXPECT_CLOSE(TestTensor(wide, row, both), want.dots, tolerance(wide, width));
        EXPECT_CLOSE(dw, sum_of(want.dw, want.dw), tolerance(wide, rows));
        EXPECT_CLOSE(d, want.dx, tolerance(dtype, width));
        return outputs(y, d, rstd, dw);
      });
    }
}

TEST(DividedNorm, ForwardMayBeInPlaceAndWeightsMayBeOverwritten) {
  const Shape shape{4, 8};
  const Values x = normals("x", 32), w(8, 1.5);
  const Plain want = plain(8, x, w, x);
  const TestTensor weight(DType::kF64, {8}, w), rstd(DType::kF64, {4}), dots(DType::kF64, {4});
  const TestTensor sums(DType::kF64, {4}, want.sums), in(DType::kF64, shape, x);
  TestTensor y(DType::kF64, shape, x), dw(DType::kF64, {8}, Values(8, 100.0));
  Ctx ctx(1, "test");
  divided_norm_forward(ctx, y, rstd, y, weight, sums, 8, kEps);
  EXPECT_CLOSE(y, want.y, tolerance(DType::kF64, 8));
  divided_norm_backward_weight(ctx, dots, dw, in, in, weight, rstd, false);
  EXPECT_CLOSE(dw, want.dw, tolerance(DType::kF64, 8));
}

TEST(DividedNorm, ShapesAreChecked) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {4, 8}), w(DType::kF32, {8}), rows(DType::kF32, {4}),
      few(DType::kF32, {3});
  EXPECT_THROW(square_sums(ctx, few, x), Error);
  EXPECT_THROW(divided_norm_forward(ctx, x, rows, x, w, few, 8, kEps), Error);
  EXPECT_THROW(divided_norm_forward(ctx, x, rows, x, w, rows, 7, kEps), Error);
  EXPECT_THROW(divided_norm_backward_weight(ctx, rows, few, x, x, w, rows, false), Error);
  EXPECT_THROW(divided_norm_backward_input(ctx, x, x, x, rows, rows, rows, 8), Error);
  expect_plannable([&](Ctx& plan) { square_sums(plan, rows, x); }, {&rows});
}

}  // namespace
}  // namespace trireme::test::test_divided_norm
