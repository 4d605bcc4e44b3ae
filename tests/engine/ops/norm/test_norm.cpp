#include <cmath>

#include "engine/ops/norm/norm.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_norm {
namespace {

using Values = std::vector<double>;

constexpr double kEps = 1e-5;

struct Forward {
  Values y, mean, rstd, h;
};

// The formulas of the header, in float64. `dtype` rounds h, which is stored before it is used.
Forward plain_forward(bool layer, DType dtype, int64_t rows, int64_t columns, const Values& x,
                      const Values& residual, const Values& w, const Values& b) {
  Forward out{.y = x, .mean = {}, .rstd = {}, .h = x};
  const auto n = static_cast<size_t>(columns);
  if (!residual.empty()) {
    for (size_t i = 0; i < x.size(); ++i) out.h[i] += residual[i];
    out.h = stored(dtype, out.h);
  }
  for (size_t t = 0; t < static_cast<size_t>(rows); ++t) {
    const double* h = out.h.data() + t * n;
    double mean = 0, square = 0;
    for (size_t c = 0; layer && c < n; ++c) mean += h[c] / static_cast<double>(columns);
    for (size_t c = 0; c < n; ++c) square += (h[c] - mean) * (h[c] - mean);
    const double rstd = 1 / std::sqrt(square / static_cast<double>(columns) + kEps);
    for (size_t c = 0; c < n; ++c)
      out.y[t * n + c] = (h[c] - mean) * rstd * w[c] + (layer ? b[c] : 0.0);
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

struct Backward {
  Values dx, dw, db;
  Values magnitude;  // of the terms of dx, which cancel, completely for C = 1
};

Backward plain_backward(bool layer, int64_t rows, int64_t columns, const Values& dy,
                        const Values& dh_in, const Forward& f, const Values& w) {
  const auto n = static_cast<size_t>(columns);
  Backward out{dy, Values(n, 0.0), Values(n, 0.0), dy};
  for (size_t t = 0; t < static_cast<size_t>(rows); ++t) {
    double mean_g = 0, mean_gn = 0;
    const auto normal = [&](size_t c) { return (f.h[t * n + c] - f.mean[t]) * f.rstd[t]; };
    for (size_t c = 0; c < n; ++c) {
      const double d = dy[t * n + c], g = d * w[c];
      out.dw[c] += d * normal(c);
      out.db[c] += d;
      if (layer) mean_g += g / static_cast<double>(columns);
      mean_gn += g * normal(c) / static_cast<double>(columns);
    }
    for (size_t c = 0; c < n; ++c) {
      const double g = dy[t * n + c] * w[c], add = dh_in.empty() ? 0.0 : dh_in[t * n + c];
      out.dx[t * n + c] = f.rstd[t] * (g - mean_g - normal(c) * mean_gn) + add;
      out.magnitude[t * n + c] =
          f.rstd[t] * (std::abs(g) + std::abs(mean_g) + std::abs(normal(c) * mean_gn)) +
          std::abs(add);
    }
  }
  return out;
}

// One problem: operands as stored in `dtype`.
struct Problem {
  Problem(bool is_layer, DType type, int64_t t, int64_t c)
      : layer(is_layer), dtype(type), rows(t), columns(c), shape{t, c} {
    const auto make = [&](const char* name, int64_t n) { return stored(type, normals(name, n)); };
    x = make("x", t * c);
    residual = make("residual", t * c);
    w = make("w", c);
    b = make("b", c);
    dy = make("dy", t * c);
    dh_in = make("dh_in", t * c);
  }
  TestTensor vector(const Values& v) const { return TestTensor(dtype, {columns}, v); }
  TestTensor matrix(const Values& v) const { return TestTensor(dtype, shape, v); }

  bool layer;
  DType dtype;
  int64_t rows, columns;
  Shape shape;
  Values x, residual, w, b, dy, dh_in;
};

void run_forward(Ctx& ctx, bool layer, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                 const Tensor& h, const ConstTensor& x, const ConstTensor& residual,
                 const ConstTensor& w, const ConstTensor& b) {
  if (layer)
    layernorm_forward(ctx, y, mean, rstd, h, x, residual, w, b, kEps);
  else
    rmsnorm_forward(ctx, y, rstd, h, x, residual, w, kEps);
}

void run_backward(Ctx& ctx, bool layer, const Tensor& dx, const Tensor& dw, const Tensor& db,
                  const ConstTensor& dy, const ConstTensor& dh_in, const ConstTensor& h,
                  const ConstTensor& w, const ConstTensor& mean, const ConstTensor& rstd,
                  bool accumulate) {
  if (layer)
    layernorm_backward(ctx, dx, dw, db, dy, dh_in, h, w, mean, rstd, accumulate);
  else
    rmsnorm_backward(ctx, dx, dw, dy, dh_in, h, w, rstd, accumulate);
}

void check_forward(const Problem& p, bool with_residual) {
  const Values none;
  const Forward want = plain_forward(p.layer, p.dtype, p.rows, p.columns, p.x,
                                     with_residual ? p.residual : none, p.w, p.b);
  const DType sums = sum_dtype(p.dtype);
  const TestTensor x = p.matrix(p.x), residual = p.matrix(p.residual), w = p.vector(p.w),
                   b = p.vector(p.b);
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(p.dtype, p.shape), h(p.dtype, p.shape), mean(sums, {p.rows}), rstd(sums, {p.rows});
    run_forward(ctx, p.layer, y, mean, rstd, with_residual ? *h : Tensor(), x,
                with_residual ? *residual : Tensor(), w, b);
    EXPECT_CLOSE(y, want.y, tolerance(p.dtype, p.columns));
    EXPECT_EACH_CLOSE(rstd, want.rstd, tolerance(sums, p.columns));
    if (p.layer) {
      EXPECT_CLOSE(mean, want.mean, tolerance(sums, p.columns));
    }
    if (with_residual) {
      EXPECT_EACH_CLOSE(h, want.h, tolerance(p.dtype));
    }
    // y over x
    TestTensor over = p.matrix(p.x);
    run_forward(ctx, p.layer, over, mean, rstd, with_residual ? *h : Tensor(), over,
                with_residual ? *residual : Tensor(), w, b);
    EXPECT_SAME_BITS(*over, *y);
    return outputs(y, h, mean, rstd);
  });
}

void check_backward(const Problem& p, bool with_residual, bool accumulate) {
  const Values none;
  const Forward f = plain_forward(p.layer, p.dtype, p.rows, p.columns, p.x, none, p.w, p.b);
  const DType sums = sum_dtype(p.dtype);
  const Backward want =
      plain_backward(p.layer, p.rows, p.columns, p.dy, with_residual ? p.dh_in : none, f, p.w);
  const Values before = accumulate ? stored(sums, normals("before", p.columns)) : none;
  Values want_dw = want.dw, want_db = want.db;
  for (size_t c = 0; c < before.size(); ++c) {
    want_dw[c] += before[c];
    want_db[c] += before[c];
  }
  const TestTensor h = p.matrix(p.x), dy = p.matrix(p.dy), dh_in = p.matrix(p.dh_in),
                   w = p.vector(p.w), mean(sums, {p.rows}, f.mean), rstd(sums, {p.rows}, f.rstd);
  const Values start = accumulate ? before : normals("garbage", p.columns);
  for_each_kernel([&](Ctx& ctx) {
    TestTensor dx(p.dtype, p.shape), dw(sums, {p.columns}, start), db(sums, {p.columns}, start);
    run_backward(ctx, p.layer, dx, dw, db, dy, with_residual ? *dh_in : Tensor(), h, w, mean, rstd,
                 accumulate);
    EXPECT_WITHIN(dx, want.dx, want.magnitude, tolerance(p.dtype, p.columns));
    EXPECT_CLOSE(dw, want_dw, tolerance(sums, p.rows));
    if (p.layer) {
      EXPECT_CLOSE(db, want_db, tolerance(sums, p.rows));
    }
    // dx over dy, and over dh_in
    TestTensor scratch_w(sums, {p.columns}), scratch_b(sums, {p.columns});
    TestTensor over_dy = p.matrix(p.dy), over_dh = p.matrix(p.dh_in);
    run_backward(ctx, p.layer, over_dy, scratch_w, scratch_b, over_dy,
                 with_residual ? *dh_in : Tensor(), h, w, mean, rstd, false);
    EXPECT_SAME_BITS(*over_dy, *dx);
    if (with_residual) {
      run_backward(ctx, p.layer, over_dh, scratch_w, scratch_b, dy, over_dh, h, w, mean, rstd,
                   false);
      EXPECT_SAME_BITS(*over_dh, *dx);
    }
    return outputs(dx, dw, db);
  });
}

class Norm : public ::testing::TestWithParam<bool> {};

TEST_P(Norm, ForwardMatchesTheFormula) {
  for (DType dtype : kFloatTypes)
    for (int64_t columns : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " C ", columns));
      const Problem p(GetParam(), dtype, columns == 33 ? 127 : 7, columns);
      check_forward(p, false);
      check_forward(p, true);
    }
}

TEST_P(Norm, BackwardMatchesTheFormula) {
  for (DType dtype : kFloatTypes)
    for (int64_t columns : kOddSizes)
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(concat(dtype, " C ", columns, " accumulate ", accumulate));
        const Problem p(GetParam(), dtype, columns == 33 ? 127 : 7, columns);
        check_backward(p, false, accumulate);
        check_backward(p, true, accumulate);
      }
}

TEST_P(Norm, ManyRowsGiveTheSameSumsForAnyNumberOfThreads) {
  check_backward(Problem(GetParam(), DType::kF32, 1000, 33), true, false);
}

TEST_P(Norm, NoRowsGiveZeroSums) {
  Ctx ctx(2, "test");
  const TestTensor empty(DType::kF32, {0, 3}), none(DType::kF32, {0}), w(DType::kF32, {3});
  TestTensor dw(DType::kF32, {3}, {1, 2, 3}), db(DType::kF32, {3}, {1, 2, 3});
  run_backward(ctx, GetParam(), empty, dw, db, empty, {}, empty, w, none, none, false);
  EXPECT_EQ(to_doubles(*dw), Values(3, 0.0));
}

// Gradients of sum(dy y) + sum(dh h) with respect to x, w and b.
TEST_P(Norm, GradientsMatchFiniteDifferences) {
  const int64_t rows = 3, columns = 7;
  const Problem p(GetParam(), DType::kF64, rows, columns);
  Ctx ctx(1, "test");
  const auto forward = [&](const Values& x, const Values& w, const Values& b) {
    TestTensor y(p.dtype, p.shape), h(p.dtype, p.shape), mean(p.dtype, {rows}),
        rstd(p.dtype, {rows});
    run_forward(ctx, p.layer, y, mean, rstd, h, p.matrix(x), p.matrix(p.residual), p.vector(w),
                p.vector(b));
    Values out = to_doubles(*y);
    for (double v : to_doubles(*h)) out.push_back(v);
    return out;
  };
  Values dout = p.dy;
  dout.insert(dout.end(), p.dh_in.begin(), p.dh_in.end());
  TestTensor y(p.dtype, p.shape), h(p.dtype, p.shape), mean(p.dtype, {rows}), rstd(p.dtype, {rows});
  run_forward(ctx, p.layer, y, mean, rstd, h, p.matrix(p.x), p.matrix(p.residual), p.vector(p.w),
              p.vector(p.b));
  TestTensor dx(p.dtype, p.shape), dw(p.dtype, {columns}), db(p.dtype, {columns});
  run_backward(ctx, p.layer, dx, dw, db, p.matrix(p.dy), p.matrix(p.dh_in), h, p.vector(p.w), mean,
               rstd, false);
  const auto expect = [&](const Tensor& got, const auto& f, const Values& at) {
    EXPECT_LT(worst_relative(to_doubles(got), finite_difference_gradient(f, at, dout)),
              finite_difference_tolerance());
  };
  expect(
      dx, [&](const Values& v) { return forward(v, p.w, p.b); }, p.x);
  expect(
      dw, [&](const Values& v) { return forward(p.x, v, p.b); }, p.w);
  if (p.layer)
    expect(
        db, [&](const Values& v) { return forward(p.x, p.w, v); }, p.b);
}

TEST_P(Norm, NanReachesItsRowOnly) {
  Problem p(GetParam(), DType::kF32, 3, 33);
  p.x[33] = std::nan("");
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(p.dtype, p.shape), mean(p.dtype, {3}), rstd(p.dtype, {3});
    run_forward(ctx, p.layer, y, mean, rstd, {}, p.matrix(p.x), {}, p.vector(p.w), p.vector(p.b));
    const Values got = to_doubles(*y);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 33 == 1) << i;
    return outputs(rstd);
  });
}

TEST_P(Norm, PlansItsScratchAndWritesNothing) {
  const Problem p(GetParam(), DType::kBF16, 100, 33);
  const TestTensor x = p.matrix(p.x), w = p.vector(p.w), b = p.vector(p.b);
  TestTensor y = p.matrix(p.dy), mean(DType::kF32, {100}), rstd(DType::kF32, {100});
  const TestTensor dx(DType::kBF16, p.shape), dw(DType::kF32, {33}), db(DType::kF32, {33});
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& ctx) {
        run_forward(ctx, p.layer, y, mean, rstd, {}, x, {}, w, b);
        run_backward(ctx, p.layer, dx, dw, db, y, {}, x, w, mean, rstd, false);
      },
      {&y, &mean, &rstd, &dx, &dw, &db});
  EXPECT_EQ(std::ssize(plan.blocks), 1);
}

TEST_P(Norm, RefusesWrongOperands) {
  const Problem p(GetParam(), DType::kF32, 3, 7);
  Ctx ctx(1, "test");
  const TestTensor x = p.matrix(p.x), w = p.vector(p.w), y(DType::kF32, p.shape);
  const TestTensor mean(DType::kF32, {3}), short_rstd(DType::kF32, {2}), rstd(DType::kF32, {3});
  EXPECT_THROW(run_forward(ctx, p.layer, y, mean, short_rstd, {}, x, {}, w, w), Error);
  EXPECT_THROW(run_forward(ctx, p.layer, y, mean, rstd, y, x, {}, w, w), Error);
  EXPECT_THROW(run_forward(ctx, p.layer, y, mean, rstd, {}, x, x, w, w), Error);
  EXPECT_THROW(run_forward(ctx, p.layer, y, mean, rstd, {}, x, {}, x, w), Error);
}

// Zero-centered weights give the same result as the weights themselves: these are exact in every
// type, so that the arithmetic is the same.
TEST(RmsNorm, WeightsMayBeStoredWithoutTheirOne) {
  const int64_t rows = 7, columns = 33;
  for (DType dtype : kFloatTypes) {
    const Problem p(false, dtype, rows, columns);
    Values less, whole;
    for (int64_t c = 0; c < columns; ++c) {
      less.push_back(static_cast<double>(c - 16) / 64);
      whole.push_back(1 + less.back());
    }
    const DType sums = sum_dtype(dtype);
    const TestTensor x = p.matrix(p.x), dy = p.matrix(p.dy), w = p.vector(whole),
                     v = p.vector(less);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, p.shape), rstd(sums, {rows}), dx(dtype, p.shape), dw(sums, {columns});
      TestTensor want_y(dtype, p.shape), want_dx(dtype, p.shape), want_dw(sums, {columns});
      rmsnorm_forward(ctx, want_y, rstd, {}, x, {}, w, kEps);
      rmsnorm_backward(ctx, want_dx, want_dw, dy, {}, x, w, rstd, false);
      rmsnorm_forward(ctx, y, rstd, {}, x, {}, v, kEps, 1);
      rmsnorm_backward(ctx, dx, dw, dy, {}, x, v, rstd, false, 1);
      EXPECT_SAME_BITS(*y, *want_y);
      EXPECT_SAME_BITS(*dx, *want_dx);
      EXPECT_SAME_BITS(*dw, *want_dw);
      return outputs(y, dx, dw);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Norm, ::testing::Bool(), [](const auto& kind) {
  return std::string(kind.param ? "Layer" : "Rms");
});

}  // namespace
}  // namespace trireme::test::test_norm
