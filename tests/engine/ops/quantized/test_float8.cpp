#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/quantized/float8.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_float8 {
namespace {

constexpr auto kTensor = Float8Scaling::kTensor;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Values of a format by definition, and the nearest value by exhaustive search.
struct Format {
  Float8Format format;
  int mantissa, bias, largest;  // bits of the mantissa; code of the largest number
  double value(int code) const {
    const int magnitude = code & 0x7f, exponent = magnitude >> mantissa;
    const double fraction = (magnitude & ((1 << mantissa) - 1)) * std::exp2(-mantissa);
    const double v = exponent == 0 ? fraction * std::exp2(1 - bias)
                                   : (1 + fraction) * std::exp2(exponent - bias);
    return (code & 0x80) != 0 ? -v : v;
  }
  int nearest(double x) const {
    int best = std::isinf(x) ? largest : 0;  // equally far from all
    for (int code = 1; code <= largest && std::isfinite(x); ++code) {
      const double before = std::abs(std::abs(x) - value(best)),
                   now = std::abs(std::abs(x) - value(code));
      if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    return best | (std::signbit(x) ? 0x80 : 0);
  }
};
const std::vector<Format> kFormats = {{Float8Format::kE4M3, 3, 7, 0x7e},
                                      {Float8Format::kE5M2, 2, 15, 0x7b}};

std::vector<double> rounded_to_float(std::vector<double> x) {
  for (double& v : x) v = static_cast<double>(static_cast<float>(v));
  return x;
}

double product(double a, double b) {
  return static_cast<double>(static_cast<float>(a) * static_cast<float>(b));
}

TEST(Amax, IsTheLargestMagnitude) {
  for (DType dtype : kFloatTypes)
    for (int64_t n : kOddSizes) {
      const TestTensor x(dtype, {n}, normals("x", n, 3.0));
      double want = 0;
      for (double v : rounded_to_float(to_doubles(*x))) want = std::max(want, std::abs(v));
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out(DType::kF32, {1});
        amax(ctx, out, x, false);
        EXPECT_EQ(to_doubles(*out)[0], want);
        TestTensor larger(DType::kF32, {1}, {1e9}), smaller(DType::kF32, {1}, {0.0});
        amax(ctx, larger, x, true);
        amax(ctx, smaller, x, true);
        EXPECT_EQ(to_doubles(*larger)[0], 1e9);
        EXPECT_EQ(to_doubles(*smaller)[0], want);
        return outputs(out);
      });
    }
}

TEST(Amax, KeepsNanAndIsZeroOfNothing) {
  Ctx ctx(1, "test");
  const TestTensor out(DType::kF32, {1}, {5.0});
  amax(ctx, out, TestTensor(DType::kBF16, {3}, {1.0, std::nan(""), kInfinity}), false);
  EXPECT_TRUE(std::isnan(to_doubles(*out)[0]));
  amax(ctx, out, TestTensor(DType::kF32, {0}), false);
  EXPECT_EQ(to_doubles(*out)[0], 0.0);
}

TEST(QuantizeFloat8, RoundsToTheNearestNumber) {
  const int64_t n = 500;
  std::vector<double> values = normals("x", n, 2.0);
  values[0] = 1e9;
  values[1] = -kInfinity;
  values[2] = -1e-9;
  const double scale = 91.7;
  for (const Format& f : kFormats)
    for (DType dtype : kFloatTypes) {
      const TestTensor x(dtype, {n}, values), s(DType::kF32, {1}, {scale});
      const std::vector<double> wide = rounded_to_float(to_doubles(*x));
      for_each_kernel([&](Ctx& ctx) {
        TestTensor codes(DType::kU8, {n}), inverse(DType::kF32, {1});
        quantize_float8(ctx, codes, inverse, x, s, f.format);
        const auto* got = codes->as<uint8_t>();
        for (int64_t i = 0; i < n; ++i)
          EXPECT_EQ(int{got[i]}, f.nearest(product(wide[static_cast<size_t>(i)], scale))) << i;
        EXPECT_EQ(inverse->as<float>()[0], 1.0f / static_cast<float>(scale));
        return outputs(codes, inverse);
      });
    }
}

TEST(QuantizeFloat8, GivesEveryGroupItsScale) {
  const int64_t rows = 131, columns = 200;
  std::vector<double> values = normals("x", rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    values[static_cast<size_t>(i)] *=
        std::exp2(static_cast<double>(i / columns % 9 - i % columns / 64));
  for (int64_t c = 0; c < 128; ++c)
    values[static_cast<size_t>(5 * columns + c)] = 0;  // a row of zeros
  const TestTensor x(DType::kF32, {rows, columns}, values);
  values = to_doubles(*x);
  for (const Format& f : kFormats)
    for (const auto scaling : {Float8Scaling::kRowGroup, Float8Scaling::kBlock}) {
      const int64_t down = scaling == Float8Scaling::kRowGroup ? 1 : 128;
      const auto largest_near = [&](int64_t r, int64_t c) {
        double largest = 0;
        for (int64_t i = r / down * down; i < std::min(rows, (r / down + 1) * down); ++i)
          for (int64_t j = c / 128 * 128; j < std::min(columns, (c / 128 + 1) * 128); ++j)
            largest = std::max(largest, std::abs(values[static_cast<size_t>(i * columns + j)]));
        return largest;
      };
      for_each_kernel([&](Ctx& ctx) {
        TestTensor codes(DType::kU8, {rows, columns});
        TestTensor inverse(DType::kF32, float8_inverse_shape(scaling, {rows, columns}));
        quantize_float8_groups(ctx, codes, inverse, x, f.format, scaling);
        for (int64_t r = 0; r < rows; r += 5)
          for (int64_t c = 0; c < columns; c += 7) {
            const double largest = largest_near(r, c);
            const float scale =
                largest == 0 ? 1.0f
                             : static_cast<float>(f.value(f.largest)) / static_cast<float>(largest);
            const int64_t at = r * columns + c;
            EXPECT_EQ(int{codes->as<uint8_t>()[at]},
                      f.nearest(product(values[static_cast<size_t>(at)], scale)));
            const int64_t group =
                scaling == Float8Scaling::kRowGroup ? c / 128 * rows + r : r / 128 * 4 + c / 128;
            EXPECT_EQ(inverse->as<float>()[group], 1.0f / scale);
          }
        for (int64_t unused : {2, 3, 6, 7})
          EXPECT_TRUE(scaling == Float8Scaling::kRowGroup || inverse->as<float>()[unused] == 0.0f);
        return outputs(codes, inverse);
      });
    }
}

TEST(QuantizeFloat8, OfTheTransposeIsTheSameOfTheOtherTensor) {
  const TestTensor scale(DType::kF32, {1}, {37.5});
  for (const auto& size : {std::pair<int64_t, int64_t>{131, 200}, {600, 3}, {1, 130}})
    for (DType dtype : kFloatTypes) {
      const int64_t rows = size.first, columns = size.second;
      const std::vector<double> values = normals("x", rows * columns);
      std::vector<double> turned;
      for (int64_t i = 0; i < rows * columns; ++i)
        turned.push_back(values[static_cast<size_t>(i % rows * columns + i / rows)]);
      const TestTensor x(dtype, {rows, columns}, values), other(dtype, {columns, rows}, turned);
      for (const auto scaling : {kTensor, Float8Scaling::kRowGroup, Float8Scaling::kBlock}) {
        const Shape groups = float8_inverse_shape(scaling, {columns, rows});
        for_each_kernel([&](Ctx& ctx) {
          TestTensor codes(DType::kU8, {columns, rows}), want(DType::kU8, {columns, rows});
          TestTensor inverse(DType::kF32, groups), want_inverse(DType::kF32, groups);
          const bool whole = scaling == kTensor;
          quantize_float8_transposed(ctx, codes, inverse, x,
                                     whole ? ConstTensor(*scale) : ConstTensor(),
                                     Float8Format::kE4M3, scaling);
          if (whole)
            quantize_float8(ctx, want, want_inverse, other, scale, Float8Format::kE4M3);
          else
            quantize_float8_groups(ctx, want, want_inverse, other, Float8Format::kE4M3, scaling);
          EXPECT_EQ(to_doubles(*codes), to_doubles(*want));
          EXPECT_EQ(to_doubles(*inverse), to_doubles(*want_inverse));
          return outputs(codes, inverse);
        });
      }
    }
}

TEST(DequantizeFloat8, ReadsEveryCode) {
  std::vector<double> all;
  for (int code = 0; code < 256; ++code) all.push_back(code);
  const TestTensor codes_in_doubles(DType::kF64, {2, 128}, all);
  for (const Format& f : kFormats) {
    TestTensor codes(DType::kU8, {2, 128});
    for (int code = 0; code < 256; ++code) codes->as<uint8_t>()[code] = static_cast<uint8_t>(code);
    const TestTensor inverse(DType::kF32, {1, 2}, {0.25, 3.0});
    Ctx ctx(1, "test");
    const TestTensor y(DType::kF32, {2, 128});
    dequantize_float8(ctx, y, codes, inverse, f.format, Float8Scaling::kRowGroup);
    const std::vector<double> got = to_doubles(*y);
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) > f.largest) continue;
      EXPECT_EQ(got[static_cast<size_t>(code)], f.value(code) * (code < 128 ? 0.25 : 3.0));
    }
  }
}

// Half the distance of two neighbours: 2^-4 of a value with three bits of mantissa.
TEST(DequantizeFloat8, GivesBackWhatWasQuantized) {
  const int64_t rows = 60, columns = 300;
  const std::vector<double> values = normals("w", rows * columns);
  for (DType dtype : kFloatTypes)
    for (const auto scaling : {Float8Scaling::kRowGroup, Float8Scaling::kBlock}) {
      const TestTensor x(dtype, {rows, columns}, values);
      const std::vector<double> want = to_doubles(*x);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor codes(DType::kU8, {rows, columns}), y(dtype, {rows, columns});
        TestTensor inverse(DType::kF32, float8_inverse_shape(scaling, {rows, columns}));
        quantize_float8_groups(ctx, codes, inverse, x, Float8Format::kE4M3, scaling);
        dequantize_float8(ctx, y, codes, inverse, Float8Format::kE4M3, scaling);
        const std::vector<double> got = to_doubles(*y);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_LE(std::abs(got[i] - want[i]), std::abs(want[i]) / 15 + 1e-4);
        return outputs(codes, inverse, y);
      });
    }
}

TEST(DelayedScale, IsOfTheLargestInTheHistory) {
  Ctx ctx(1, "test");
  const TestTensor scale(DType::kF32, {2}, {9.0, 9.0});
  const TestTensor history(DType::kF32, {2, 3}, std::vector<double>(6, 0.0));
  const auto step = [&](double first, double second) {
    update_delayed_scale(ctx, scale, history, TestTensor(DType::kF32, {2}, {first, second}),
                         Float8Format::kE4M3, 1);
    return to_doubles(*scale);
  };
  EXPECT_EQ(step(7.0, 0.0), (std::vector<double>{32.0, 9.0}));  // 448 / 7 / 2
  EXPECT_EQ(step(3.5, 14.0), (std::vector<double>{32.0, 16.0}));
  EXPECT_EQ(step(1.75, kInfinity), (std::vector<double>{32.0, 16.0}));
  EXPECT_EQ(to_doubles(*history), (std::vector<double>{1.75, 3.5, 7.0, 14.0, 0.0, 0.0}));
  EXPECT_EQ(step(std::nan(""), 1.0), (std::vector<double>{32.0, 16.0}));
  EXPECT_EQ(to_doubles(*history), (std::vector<double>{1.75, 3.5, 7.0, 1.0, 14.0, 0.0}));
  EXPECT_EQ(step(1.75, 1.0)[0], 64.0);  // 7 was dropped from the history
}

TEST(CurrentScale, IsOfThisAmax) {
  Ctx ctx(1, "test");
  const TestTensor scale(DType::kF32, {5});
  const TestTensor largest(DType::kF32, {5}, {7.0, 0.0, kInfinity, std::nan(""), 1e-37});
  scale_from_amax(ctx, scale, largest, Float8Format::kE5M2, 0);
  const double most = std::numeric_limits<float>::max();
  EXPECT_EQ(to_doubles(*scale), (std::vector<double>{8192.0, 1.0, 1.0, 1.0, most}));
}

TEST(Float8, RefusesOtherShapesAndTypes) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 3}), codes(DType::kU8, {2, 3}), one(DType::kF32, {1});
  const TestTensor half(DType::kBF16, {1}), rows(DType::kF32, {1, 2});
  EXPECT_THROW(amax(ctx, half, x, false), Error);
  EXPECT_THROW(quantize_float8(ctx, x, one, x, one, Float8Format::kE4M3), Error);
  EXPECT_THROW(quantize_float8(ctx, codes, half, x, one, Float8Format::kE4M3), Error);
  EXPECT_THROW(
      quantize_float8_groups(ctx, codes, one, x, Float8Format::kE4M3, Float8Scaling::kRowGroup),
      Error);
  EXPECT_THROW(dequantize_float8(ctx, x, codes, rows, Float8Format::kE4M3, kTensor), Error);
  EXPECT_THROW(quantize_float8_transposed(ctx, codes, one, x, one, Float8Format::kE4M3, kTensor),
               Error);
}

TEST(Float8, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 3}, normals("x", 6)), s(DType::kF32, {1}, {2.0});
  const TestTensor codes(DType::kU8, {2, 3}), one(DType::kF32, {1}, {2.0}),
      rows(DType::kF32, {1, 2});
  const TestTensor y(DType::kF32, {2, 3}), turned(DType::kU8, {3, 2});
  expect_plannable(
      [&](Ctx& ctx) {
        amax(ctx, one, x, true);
        scale_from_amax(ctx, one, s, Float8Format::kE4M3, 0);
        quantize_float8(ctx, codes, one, x, s, Float8Format::kE4M3);
        quantize_float8_groups(ctx, codes, rows, x, Float8Format::kE4M3, Float8Scaling::kRowGroup);
        quantize_float8_transposed(ctx, turned, one, x, s, Float8Format::kE4M3, kTensor);
        dequantize_float8(ctx, y, codes, one, Float8Format::kE4M3, kTensor);
      },
      {&codes, &turned, &one, &rows, &y});
}

}  // namespace
}  // namespace trireme::test::test_float8
