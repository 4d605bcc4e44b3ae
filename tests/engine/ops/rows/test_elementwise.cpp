#include <cmath>
#include <limits>

#include "engine/ops/rows/elementwise.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_elementwise {
namespace {

TEST(Add, MatchesTheSum) {
  for (DType dtype : kFloatTypes)
    for (int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const std::vector<double> a = stored(dtype, normals("a", n)),
                                b = stored(dtype, normals("b", n));
      std::vector<double> want = a;
      for (size_t i = 0; i < want.size(); ++i) want[i] += b[i];
      const TestTensor ta(dtype, {n}, a), tb(dtype, {n}, b);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, {n});
        add(ctx, y, ta, tb);
        EXPECT_EACH_CLOSE(y, want, tolerance(dtype));
        TestTensor in_place(dtype, {n}, a);
        add(ctx, in_place, in_place, tb);
        EXPECT_SAME_BITS(*in_place, *y);
        return outputs(y);
      });
    }
}

TEST(Add, UsesSeveralThreadsAlike) {
  const int64_t n = 100'003;
  const TestTensor a(DType::kBF16, {n}, normals("a", n)), b(DType::kBF16, {n}, normals("b", n));
  std::vector<double> want = to_doubles(*a);
  const std::vector<double> added = to_doubles(*b);
  for (size_t i = 0; i < want.size(); ++i) want[i] += added[i];
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(DType::kBF16, {n});
    add(ctx, y, a, b);
    EXPECT_EACH_CLOSE(y, want, tolerance(DType::kBF16));
    return outputs(y);
  });
}

TEST(Add, RefusesOtherShapesAndTypes) {
  Ctx ctx(1, "test");
  const TestTensor y(DType::kF32, {3}), x(DType::kF32, {4}), z(DType::kBF16, {3});
  EXPECT_THROW(add(ctx, y, y, x), Error);
  EXPECT_THROW(add(ctx, y, z, y), Error);
  const TestTensor wide(DType::kF32, {3, 2});
  EXPECT_THROW(add(ctx, wide->slice(1, 0, 1), wide->slice(1, 0, 1), wide->slice(1, 0, 1)), Error);
}

// The factor is rounded to the dtype: in bfloat16 sqrt(1152) is 34, not 33.94.
TEST(Scale, MultipliesByTheRoundedFactor) {
  const double factor = std::sqrt(1152.0);
  for (DType dtype : kFloatTypes)
    for (int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const std::vector<double> x = stored(dtype, normals("x", n));
      const double rounded = stored(dtype, {factor})[0];
      if (dtype == DType::kBF16) {
        EXPECT_EQ(rounded, 34.0);
      }
      std::vector<double> want = x;
      for (double& v : want) v *= rounded;
      const TestTensor tx(dtype, {n}, x);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, {n}), in_place(dtype, {n}, x);
        scale(ctx, y, tx, factor);
        EXPECT_EACH_CLOSE(y, want, tolerance(dtype));
        scale(ctx, in_place, in_place, factor);
        EXPECT_SAME_BITS(*in_place, *y);
        return outputs(y);
      });
    }
}

// A factor that bfloat16 and float16 have no value for, in the type of the products.
TEST(Scale, MultipliesByTheFactorAsItIs) {
  const double factor = 0.22;
  for (DType dtype : kFloatTypes)
    for (int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const std::vector<double> x = stored(dtype, normals("x", n));
      const double used = stored(sum_dtype(dtype), {factor})[0];
      std::vector<double> want = x;
      for (double& v : want) v *= used;
      const TestTensor tx(dtype, {n}, x);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, {n}), in_place(dtype, {n}, x);
        scale(ctx, y, tx, factor, FactorRounding::kProduct);
        EXPECT_EACH_CLOSE(y, want, tolerance(dtype));
        scale(ctx, in_place, in_place, factor, FactorRounding::kProduct);
        EXPECT_SAME_BITS(*in_place, *y);
        return outputs(y);
      });
    }
  // bfloat16 has 225 / 1024 for it; the products 22.44 and 22.41 are rounded to eighths.
  Ctx ctx(1, "test");
  const TestTensor x(DType::kBF16, {1}, {102.0});
  const TestTensor exact(DType::kBF16, {1}), rounded(DType::kBF16, {1});
  scale(ctx, exact, x, factor, FactorRounding::kProduct);
  scale(ctx, rounded, x, factor);
  EXPECT_EQ(to_doubles(*exact)[0], 22.5);
  EXPECT_EQ(to_doubles(*rounded)[0], 22.375);
}

// Nearest value of the narrow type, by comparing both neighbours in float64.
template <class T>
double nearest(double x) {
  T t(static_cast<float>(x));
  double best = static_cast<double>(static_cast<float>(t));
  for (int step : {-1, 1}) {
    T other;
    other.bits = static_cast<uint16_t>(t.bits + step);
    const double y = static_cast<double>(static_cast<float>(other));
    if (!std::isfinite(y) || (y < 0) != (x < 0)) continue;
    const double gain = std::abs(x - best) - std::abs(x - y);
    if (gain > 0 || (gain == 0 && other.bits % 2 == 0)) {
      best = y;
      t = other;
    }
  }
  return best;
}

TEST(Cast, RoundsToNearestEvenBetweenAllTypes) {
  const int64_t n = 1000;
  std::vector<double> values = normals("cast", n);
  // Slightly above, on and below the middle of two bfloat16 values, closer than float32 resolves: a
  // conversion through float32 would round these twice.
  const double middle = 1.0 + 0x1p-8;
  values[0] = middle + 0x1p-40;
  values[1] = middle - 0x1p-40;
  values[2] = middle;
  values[3] = 1.0 + 3 * 0x1p-11 - 0x1p-40;
  values[4] = -values[0];
  for (DType from : kFloatTypes)
    for (DType to : kFloatTypes) {
      SCOPED_TRACE(concat(from, " to ", to));
      const TestTensor x(from, {n}, values);
      std::vector<double> want = to_doubles(*x);
      for (double& v : want) {
        if (to == DType::kF32) v = static_cast<double>(static_cast<float>(v));
        if (to == DType::kBF16) v = nearest<bf16>(v);
        if (to == DType::kF16) v = nearest<f16>(v);
      }
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(to, {n});
        cast(ctx, y, x);
        EXPECT_EQ(to_doubles(*y), want);
        return outputs(y);
      });
    }
}

TEST(Cast, KeepsInfinityAndNan) {
  const double big = std::numeric_limits<double>::max(), inf = INFINITY;
  for (DType from : kFloatTypes)
    for (DType to : kFloatTypes) {
      SCOPED_TRACE(concat(from, " to ", to));
      const TestTensor x(from, {5},
                         {inf, -inf, std::nan(""), -0.0, from == DType::kF64 ? -big : -inf});
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(to, {5});
        cast(ctx, y, x);
        const std::vector<double> got = to_doubles(*y);
        EXPECT_EQ(got[0], inf);
        EXPECT_EQ(got[1], -inf);
        EXPECT_TRUE(std::isnan(got[2]));
        EXPECT_TRUE(std::signbit(got[3]));
        EXPECT_EQ(got[4], from == DType::kF64 && to == DType::kF64 ? -big : -inf);
        return outputs(y);
      });
    }
}

TEST(FillZero, ClearsEveryByteAndNoOther) {
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{100'000}})
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(DType::kF32, {n}, std::vector<double>(static_cast<size_t>(n), 1.0));
      fill_zero(ctx, y);
      EXPECT_EQ(to_doubles(*y), std::vector<double>(static_cast<size_t>(n), 0.0));
      return outputs(y);
    });
}

// Dropout as defined in the header, element by element.
std::vector<double> plain_dropout(const std::vector<double>& x, const std::vector<double>& residual,
                                  const std::vector<int64_t>& rows, int64_t columns, double p,
                                  const RandomKey& key) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t t = i / static_cast<size_t>(columns), c = i % static_cast<size_t>(columns);
    const auto word = static_cast<uint64_t>(rows[t] * columns) + c;
    const bool keep = uniform_from_word(philox_word(key, word)) >= p;
    y[i] = (keep ? x[i] / (1.0 - p) : 0.0) + (residual.empty() ? 0.0 : residual[i]);
  }
  return y;
}

TEST(Dropout, MatchesTheDefinition) {
  const RandomKey key{7, stream_id("layer")};
  const int64_t tokens = 5;
  const std::vector<int64_t> rows = {0, 3, 1'000'000'007, 17, 4};
  for (DType dtype : kFloatTypes)
    for (int64_t columns : kOddSizes)
      for (double p : {0.0, 0.1, 0.5}) {
        SCOPED_TRACE(concat(dtype, " ", columns, " p ", p));
        const Shape shape{tokens, columns};
        const std::vector<double> x = stored(dtype, normals("x", shape.numel()));
        const std::vector<double> h = stored(dtype, normals("h", shape.numel()));
        const TestTensor tx(dtype, shape, x), th(dtype, shape, h), tr({tokens}, rows);
        const std::vector<double> plain = plain_dropout(x, {}, rows, columns, p, key);
        const std::vector<double> added = plain_dropout(x, h, rows, columns, p, key);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor y(dtype, shape), z(dtype, shape);
          dropout(ctx, y, tx, {}, tr, p, key);
          EXPECT_EACH_CLOSE(y, plain, tolerance(dtype));
          dropout(ctx, z, tx, th, tr, p, key);
          EXPECT_CLOSE(z, added, tolerance(dtype));
          TestTensor over_x(dtype, shape, x), over_residual(dtype, shape, h);
          dropout(ctx, over_x, over_x, th, tr, p, key);
          EXPECT_SAME_BITS(*over_x, *z);
          dropout(ctx, over_residual, tx, over_residual, tr, p, key);
          EXPECT_SAME_BITS(*over_residual, *z);
          return outputs(y, z);
        });
      }
}

TEST(Dropout, BackwardIsTheSameMask) {
  const RandomKey key{7, 8};
  const int64_t columns = 33;
  const TestTensor rows({2}, std::vector<int64_t>{5, 9});
  const std::vector<double> x = normals("x", 2 * columns), dy = normals("dy", 2 * columns);
  Ctx ctx(1, "test");
  const auto f = [&](const std::vector<double>& v) {
    TestTensor y(DType::kF64, {2, columns});
    dropout(ctx, y, TestTensor(DType::kF64, {2, columns}, v), {}, rows, 0.3, key);
    return to_doubles(*y);
  };
  EXPECT_LT(worst_relative(f(dy), finite_difference_gradient(f, x, dy)),
            finite_difference_tolerance());
}

TEST(Dropout, DropsTheAskedShare) {
  const int64_t tokens = 64, columns = 1000;
  std::vector<int64_t> rows(static_cast<size_t>(tokens));
  for (size_t t = 0; t < rows.size(); ++t) rows[t] = static_cast<int64_t>(t);
  const TestTensor x(DType::kF32, {tokens, columns},
                     std::vector<double>(static_cast<size_t>(tokens * columns), 1.0));
  const TestTensor y(DType::kF32, {tokens, columns});
  Ctx ctx(2, "test");
  const double p = 0.2, n = static_cast<double>(tokens * columns);
  dropout(ctx, y, x, {}, TestTensor({tokens}, rows), p, {1, 2});
  double dropped = 0;
  for (double v : to_doubles(*y)) dropped += v == 0.0;
  const double sigma = std::sqrt(n * p * (1 - p));
  EXPECT_NEAR(dropped, n * p, 4 * sigma);
}

TEST(Dropout, RefusesBadArguments) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 3}), rows({2}, std::vector<int64_t>{0, 1});
  EXPECT_THROW(dropout(ctx, x, x, {}, rows, 1.0, {}), Error);
  EXPECT_THROW(dropout(ctx, x, x, {}, rows, -0.1, {}), Error);
  EXPECT_THROW(dropout(ctx, x, x, {}, rows, std::nan(""), {}), Error);
  EXPECT_THROW(dropout(ctx, x, x, {}, TestTensor({3}, std::vector<int64_t>{0, 1, 2}), 0.1, {}),
               Error);
  EXPECT_THROW(dropout(ctx, x, x, {}, {}, 0.1, {}), Error);
}

TEST(Elementwise, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 3}, normals("x", 6)), rows({2}, std::vector<int64_t>{0, 1});
  const TestTensor y(DType::kF32, {2, 3}, normals("y", 6)), z(DType::kBF16, {2, 3});
  expect_plannable(
      [&](Ctx& ctx) {
        add(ctx, y, x, x);
        cast(ctx, z, x);
        scale(ctx, y, x, 2.0);
        fill_zero(ctx, y);
        dropout(ctx, y, x, {}, rows, 0.1, {});
        dropout(ctx, y, x, x, rows, 0.0, {});
      },
      {&y, &z});
}

}  // namespace
}  // namespace trireme::test::test_elementwise
