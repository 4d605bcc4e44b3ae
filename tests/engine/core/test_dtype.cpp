#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/dtype.h"

namespace trireme::test_dtype {
namespace {

// Value of a bit pattern with one sign bit, `exponent_bits` and `fraction_bits`, by definition.
double value_of(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>((bits >> fraction_bits) & ((1u << exponent_bits) - 1));
  const double fraction =
      std::ldexp(static_cast<double>(bits & ((1u << fraction_bits) - 1)), -fraction_bits);
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1)
    magnitude = fraction == 0 ? INFINITY : std::nan("");
  else
    magnitude =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (bits >> (exponent_bits + fraction_bits)) != 0 ? -magnitude : magnitude;
}

template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int kExponent = 8, kFraction = 7;
};
template <>
struct Format<f16> {
  static constexpr int kExponent = 5, kFraction = 10;
};

template <class T>
class HalfTypes : public ::testing::Test {};
using Halves = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(HalfTypes, Halves);

template <class T>
T from_bits(uint32_t bits) {
  T t;
  t.bits = static_cast<uint16_t>(bits);
  return t;
}

TYPED_TEST(HalfTypes, EveryPatternConvertsByItsDefinitionAndBack) {
  using F = Format<TypeParam>;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = static_cast<float>(from_bits<TypeParam>(bits));
    const double want = value_of(bits, F::kExponent, F::kFraction);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(got)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << bits;
      ASSERT_EQ(std::signbit(got), bits >= 0x8000u) << bits;
      ASSERT_EQ(TypeParam(got).bits, bits);
    }
  }
}

// Between every two neighbours: slightly below the middle, the middle, slightly above it.
TYPED_TEST(HalfTypes, RoundsToNearestEven) {
  using F = Format<TypeParam>;
  const uint32_t infinity = ((1u << F::kExponent) - 1) << F::kFraction;
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = value_of(bits, F::kExponent, F::kFraction);
    const double high = value_of(bits + 1, F::kExponent, F::kFraction);
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(TypeParam(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(TypeParam(std::nextafter(middle, INFINITY)).bits, bits + 1);
    ASSERT_EQ(TypeParam(-middle).bits, (bits % 2 == 0 ? bits : bits + 1) | 0x8000u);
  }
}

TYPED_TEST(HalfTypes, OverflowsToInfinityFromTheMiddleOn) {
  using F = Format<TypeParam>;
  const uint32_t infinity = ((1u << F::kExponent) - 1) << F::kFraction;
  const double largest = value_of(infinity - 1, F::kExponent, F::kFraction);
  const double below = value_of(infinity - 2, F::kExponent, F::kFraction);
  const auto middle = static_cast<float>(largest + (largest - below) / 2);
  EXPECT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, infinity - 1);
  EXPECT_EQ(TypeParam(middle).bits, infinity);
  EXPECT_EQ(TypeParam(static_cast<float>(INFINITY)).bits, infinity);
}

TEST(DType, ANanNeverBecomesInfinity) {
  // All NaN patterns whose truncated upper half would be an infinity, and those where rounding
  // carries.
  for (uint32_t low = 1; low < 65536; ++low)
    for (uint32_t high : {0x7f80u, 0xff80u, 0x7fffu, 0xffffu}) {
      const float nan = std::bit_cast<float>(high << 16 | low);
      ASSERT_TRUE(std::isnan(static_cast<float>(bf16(nan)))) << high << " " << low;
    }
}

TEST(DType, SizesNamesAndPrecision) {
  const DType all[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                       DType::kI64, DType::kI32, DType::kU16,  DType::kU8};
  const int64_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(dtype_size(all[i]), sizes[i]);
    EXPECT_EQ(is_float(all[i]), i < 4);
    for (int j = 0; j < i; ++j) EXPECT_NE(dtype_name(all[i]), dtype_name(all[j]));
  }
  EXPECT_EQ(dtype_name(DType::kBF16), "bfloat16");
  EXPECT_EQ(dtype_eps(DType::kF32), std::numeric_limits<float>::epsilon());
  // eps: distance from 1 to the next value.
  EXPECT_EQ(dtype_eps(DType::kBF16), value_of(bf16(1.0f).bits + 1u, 8, 7) - 1);
  EXPECT_EQ(dtype_eps(DType::kF16), value_of(f16(1.0f).bits + 1u, 5, 10) - 1);
  EXPECT_THROW(dtype_eps(DType::kI32), Error);
  EXPECT_EQ(sum_dtype(DType::kF64), DType::kF64);
  EXPECT_EQ(sum_dtype(DType::kF16), DType::kF32);
}

TEST(DType, DispatchGivesTheMatchingType) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    EXPECT_EQ(dispatch_float("test", dtype, []<class T>() { return dtype_of<T>; }), dtype);
  try {
    dispatch_float("gelu", DType::kI32, []<class T>() { return 0; });
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gelu has no kernel for dtype int32"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace trireme::test_dtype
