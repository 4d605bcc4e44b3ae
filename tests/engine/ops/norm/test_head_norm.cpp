#include <cmath>

#include "engine/ops/norm/head_norm.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_head_norm {
namespace {

using Values = std::vector<double>;

constexpr double kEps = 1e-5;

// The formulas of the header, in float64, for consecutive vectors.
struct Plain {
  Values y, rstd, dx, dw;
};

Plain plain(int64_t width, const Values& x, const Values& w, const Values& dy) {
  const auto d = static_cast<size_t>(width);
  Plain out{x, {}, dy, Values(d, 0.0)};
  for (size_t at = 0; at < x.size(); at += d) {
    double square = 0, mean_gn = 0;
    for (size_t c = 0; c < d; ++c) square += x[at + c] * x[at + c] / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(square + kEps);
    out.rstd.push_back(rstd);
    for (size_t c = 0; c < d; ++c) {
      const double n = x[at + c] * rstd;
      out.y[at + c] = n * w[c];
      out.dw[c] += dy[at + c] * n;
      mean_gn += dy[at + c] * w[c] * n / static_cast<double>(width);
    }
    for (size_t c = 0; c < d; ++c)
      out.dx[at + c] = rstd * (dy[at + c] * w[c] - x[at + c] * rstd * mean_gn);
  }
  return out;
}

// Heads of a packed projection, with `margin` elements before and after them.
struct Packed {
  Packed(DType dtype, int64_t rows, int64_t heads, int64_t width, int64_t margin,
         const Values& values)
      : columns(heads * width + 2 * margin), all(dtype, {rows, columns}, spread(values, margin)) {
    view = all->slice(1, margin, columns - margin).split_last(heads, width);
  }
  Values heads(int64_t margin) const {
    const Values every = to_doubles(all);
    Values out;
    for (size_t i = 0; i < every.size(); ++i)
      if (const auto c = static_cast<int64_t>(i) % columns; c >= margin && c < columns - margin)
        out.push_back(every[i]);
    return out;
  }
  int64_t columns;
  TestTensor all;
  Tensor view;

 private:
  Values spread(const Values& values, int64_t margin) const {
    const int64_t inner = columns - 2 * margin;
    Values out(values.size() / static_cast<size_t>(inner) * static_cast<size_t>(columns), 7.0);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      out[static_cast<size_t>(at / inner * columns + margin + at % inner)] = values[i];
    }
    return out;
  }
};

TEST(HeadNorm, ForwardAndBackwardAreTheFormulas) {
  const int64_t rows = 37, heads = 3, margin = 5;
  for (const DType dtype : kFloatTypes)
    for (const int64_t width : {1, 6, 16, 64, 130}) {
      SCOPED_TRACE(concat(dtype, " ", width));
      const int64_t n = rows * heads * width;
      const Values x = stored(dtype, normals("x", n)), dy = stored(dtype, normals("dy", n)),
                   w = stored(dtype, normals("w", width));
      const Plain want = plain(width, x, w, dy);
      const DType sums = sum_dtype(dtype);
      const TestTensor weight(dtype, {width}, w);
      const Shape statistics{rows, heads};
      for_each_kernel([&](Ctx& ctx) {
        const Packed in(dtype, rows, heads, width, margin, x);
        Packed out(dtype, rows, heads, width, margin, x), d(dtype, rows, heads, width, margin, dy);
        TestTensor rstd(sums, statistics), dw(sums, {width}, want.dw);
        head_norm_forward(ctx, out.view, rstd, in.view, weight, kEps);
        EXPECT_CLOSE(TestTensor(dtype, {rows * heads, width}, out.heads(margin)), want.y,
                     tolerance(dtype, width));
        EXPECT_CLOSE(rstd, want.rstd, tolerance(sums, width));
        // In place, and accumulated.
        const TestTensor exact(sums, statistics, want.rstd);
        head_norm_backward(ctx, d.view, dw, d.view, in.view, weight, exact, true);
        if (width > 1) {  // else dx is only eps
          EXPECT_CLOSE(TestTensor(dtype, {rows * heads, width}, d.heads(margin)), want.dx,
                       tolerance(dtype, width));
        }
        Values twice = want.dw;
        for (double& value : twice) value *= 2;
        EXPECT_CLOSE(dw, twice, tolerance(sums, rows * heads));
        for (const Packed* p : {&out, &d}) {
          const Values all = to_doubles(p->all);
          EXPECT_EQ(all.front(), 7.0);
          EXPECT_EQ(all.back(), 7.0);
        }
        return outputs(out.all, d.all, rstd, dw);
      });
    }
}

TEST(HeadNorm, ForwardMayBeInPlace) {
  const Shape shape{4, 2, 8};
  const Values x = normals("x", shape.numel()), w(8, 1.5);
  const TestTensor weight(DType::kF64, {8}, w), rstd(DType::kF64, {4, 2});
  TestTensor y(DType::kF64, shape, x);
  Ctx ctx(1, "test");
  head_norm_forward(ctx, y, rstd, y, weight, kEps);
  EXPECT_CLOSE(y, plain(8, x, w, x).y, tolerance(DType::kF64, 8));
}

// Zero-centered weights give the same result as the weights themselves: these are exact.
TEST(HeadNorm, WeightsMayBeStoredWithoutTheirOne) {
  const int64_t width = 33;
  const Shape shape{5, 3, width}, statistics{5, 3};
  Values less, whole;
  for (int64_t c = 0; c < width; ++c) {
    less.push_back(static_cast<double>(c - 16) / 64);
    whole.push_back(1 + less.back());
  }
  for (const DType dtype : kFloatTypes) {
    const DType sums = sum_dtype(dtype);
    const TestTensor x(dtype, shape, normals("x", shape.numel()));
    const TestTensor dy(dtype, shape, normals("dy", shape.numel()));
    const TestTensor w(dtype, {width}, whole), v(dtype, {width}, less);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, shape), dx(dtype, shape), dw(sums, {width}), rstd(sums, statistics);
      TestTensor want_y(dtype, shape), want_dx(dtype, shape), want_dw(sums, {width});
      head_norm_forward(ctx, want_y, rstd, x, w, kEps);
      head_norm_backward(ctx, want_dx, want_dw, dy, x, w, rstd, false);
      head_norm_forward(ctx, y, rstd, x, v, kEps, 1);
      head_norm_backward(ctx, dx, dw, dy, x, v, rstd, false, 1);
      EXPECT_SAME_BITS(*y, *want_y);
      EXPECT_SAME_BITS(*dx, *want_dx);
      EXPECT_SAME_BITS(*dw, *want_dw);
      return outputs(y, dx, dw);
    });
  }
}

TEST(HeadNorm, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {4, 2, 8}), rstd(DType::kF32, {4, 2}), w(DType::kF32, {8});
  EXPECT_THROW(head_norm_forward(ctx, x, rstd, TestTensor(DType::kF32, {4, 16}), w, kEps), Error);
  EXPECT_THROW(head_norm_forward(ctx, x, TestTensor(DType::kF32, {4}), x, w, kEps), Error);
  EXPECT_THROW(head_norm_forward(ctx, x, rstd, x, TestTensor(DType::kF32, {2}), kEps), Error);
  EXPECT_THROW(head_norm_backward(ctx, x, TestTensor(DType::kF64, {8}), x, x, w, rstd, false),
               Error);
}

TEST(HeadNorm, IsPlannable) {
  const TestTensor x(DType::kBF16, {40, 2, 8}), rstd(DType::kF32, {40, 2}), w(DType::kBF16, {8}),
      dx(DType::kBF16, {40, 2, 8}), dw(DType::kF32, {8});
  expect_plannable(
      [&](Ctx& ctx) {
        head_norm_forward(ctx, dx, rstd, x, w, kEps);
        head_norm_backward(ctx, dx, dw, dx, x, w, rstd, false);
      },
      {&dx, &rstd, &dw});
}

}  // namespace
}  // namespace trireme::test::test_head_norm
