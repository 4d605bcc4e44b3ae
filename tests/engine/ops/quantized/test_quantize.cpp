#include <algorithm>
#include <cmath>

#include "engine/ops/quantized/quantize.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_quantize {
namespace {

constexpr int64_t kRows = 5, kColumns = 300, kGroups = 3;

std::vector<double> as_float(std::vector<double> x) {
  for (double& v : x) v = static_cast<double>(static_cast<float>(v));
  return x;
}

// Nearest integer; the middle rounds to even.
int nearest(double x) { return static_cast<int>(std::nearbyint(x)); }
double divided(double a, double b) {
  return static_cast<double>(static_cast<float>(a) / static_cast<float>(b));
}

TEST(QuantizeInt8, RoundsToTheStepsOfARow) {
  for (DType dtype : kFloatTypes) {
    std::vector<double> values = normals("w", kRows * kColumns);
    std::fill_n(values.begin(), kColumns, 0.0);  // a row of zeros
    const TestTensor w(dtype, {kRows, kColumns}, values);
    const std::vector<double> x = as_float(to_doubles(*w));
    for_each_kernel([&](Ctx& ctx) {
      TestTensor codes(DType::kU8, {kRows, kColumns}), scale(DType::kF32, {kRows});
      TestTensor back(dtype, {kRows, kColumns});
      quantize_int8(ctx, codes, scale, w);
      dequantize_int8(ctx, back, codes, scale);
      for (int64_t r = 0; r < kRows; ++r) {
        double largest = 0;
        for (int64_t c = 0; c < kColumns; ++c)
          largest = std::max(largest, std::abs(x[static_cast<size_t>(r * kColumns + c)]));
        const double step = largest > 0 ? divided(largest, 127) : 1.0;
        EXPECT_EQ(static_cast<double>(scale->as<float>()[r]), step);
        for (int64_t c = 0; c < kColumns; ++c) {
          const int64_t i = r * kColumns + c;
          EXPECT_EQ(static_cast<int>(static_cast<int8_t>(codes->as<uint8_t>()[i])),
                    nearest(divided(x[static_cast<size_t>(i)], step)));
        }
      }
      const std::vector<double> got = to_doubles(*back);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], x[i], 0.02 + 0.01 * std::abs(x[i]));  // half of 4 / 127, and bfloat16
      return outputs(codes, scale, back);
    });
  }
}

void check_int4(DType dtype, bool symmetric) {
  std::vector<double> values = normals("w", kRows * kColumns);
  std::fill_n(values.begin(), 128, 0.25);  // a group without a range
  const TestTensor w(dtype, {kRows, kColumns}, values);
  const std::vector<double> x = as_float(to_doubles(*w));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor codes(DType::kU8, {kRows, kColumns / 2}), scale(DType::kF32, {kRows, kGroups});
    TestTensor minimum(DType::kF32, {kRows, kGroups}), back(dtype, {kRows, kColumns});
    const Tensor none;
    quantize_int4(ctx, codes, scale, symmetric ? none : *minimum, w);
    dequantize_int4(ctx, back, codes, scale, symmetric ? none : *minimum);
    std::vector<double> want;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const int64_t r = i / kColumns, c = i % kColumns, g = c / 128;
      const auto first = x.begin() + r * kColumns + g * 128;
      const auto [low, high] =
          std::minmax_element(first, first + std::min<int64_t>(128, kColumns - g * 128));
      const double range = symmetric ? std::max(-*low, *high) : divided(*high - *low, 1);
      const double quotient = divided(range, symmetric ? 7 : 15),
                   step = quotient > 0 ? quotient : 1;
      EXPECT_EQ(static_cast<double>(scale->as<float>()[r * kGroups + g]), step);
      const double value = x[static_cast<size_t>(i)];
      const double from_low = static_cast<double>(static_cast<float>(value - *low));
      const int code =
          symmetric ? 8 + nearest(divided(value, step)) : nearest(divided(from_low, step));
      const int byte = codes->as<uint8_t>()[i / 2];
      EXPECT_EQ(i % 2 == 0 ? byte & 15 : byte >> 4, code) << i;
      want.push_back(symmetric ? step * (code - 8) : *low + step * code);
    }
    EXPECT_CLOSE(back, want,
                 (Tolerance{tolerance(dtype).relative + tolerance(DType::kF32).relative}));
    return outputs(codes, scale, minimum, back);
  });
}

TEST(QuantizeInt4, RoundsToTheStepsOfAGroup) {
  for (DType dtype : kFloatTypes)
    for (bool symmetric : {false, true}) check_int4(dtype, symmetric);
}

// Integers with a zero point, as in third-party files, are read exactly.
TEST(DequantizeInt4, ReadsAZeroPointAsAMinimum) {
  Ctx ctx(1, "test");
  TestTensor codes(DType::kU8, {1, 2});
  codes->as<uint8_t>()[0] = 0xf0;  // 0, 15
  codes->as<uint8_t>()[1] = 0x75;  // 5, 7
  const TestTensor scale(DType::kF32, {1, 1}, {0.5}), minimum(DType::kF32, {1, 1}, {-0.5 * 5});
  const TestTensor w(DType::kF32, {1, 4});
  dequantize_int4(ctx, w, codes, scale, minimum);
  EXPECT_EQ(to_doubles(*w), (std::vector<double>{-2.5, 5.0, 0.0, 1.0}));
  dequantize_int4(ctx, w, codes, scale, {});
  EXPECT_EQ(to_doubles(*w), (std::vector<double>{-4.0, 3.5, -1.5, -0.5}));
}

TEST(Quantize, RefusesOtherShapesAndTypes) {
  Ctx ctx(1, "test");
  const TestTensor w(DType::kF32, {2, 4}), odd(DType::kF32, {2, 3}), codes(DType::kU8, {2, 4});
  const TestTensor two(DType::kF32, {2}), packed(DType::kU8, {2, 2}), groups(DType::kF32, {2, 1});
  EXPECT_THROW(quantize_int8(ctx, w, two, w), Error);
  EXPECT_THROW(quantize_int8(ctx, codes, groups, w), Error);
  EXPECT_THROW(quantize_int4(ctx, codes, groups, {}, w), Error);
  EXPECT_THROW(quantize_int4(ctx, packed, two, {}, w), Error);
  EXPECT_THROW(quantize_int4(ctx, packed, groups, two, w), Error);
  EXPECT_THROW(dequantize_int4(ctx, odd, packed, groups, {}), Error);
}

TEST(Quantize, PlanningWritesNothing) {
  const TestTensor w(DType::kF32, {2, 4}, normals("w", 8)), codes(DType::kU8, {2, 4});
  const TestTensor two(DType::kF32, {2}), packed(DType::kU8, {2, 2}), groups(DType::kF32, {2, 1});
  const TestTensor y(DType::kBF16, {2, 4});
  expect_plannable(
      [&](Ctx& ctx) {
        quantize_int8(ctx, codes, two, w);
        dequantize_int8(ctx, y, codes, two);
        quantize_int4(ctx, packed, groups, groups, w);
        dequantize_int4(ctx, y, packed, groups, {});
      },
      {&codes, &two, &packed, &groups, &y});
}

}  // namespace
}  // namespace trireme::test::test_quantize
