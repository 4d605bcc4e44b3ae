#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/float8.h"

namespace trireme::test_float8 {
namespace {

// Value of the bits, by the definition of the format.
double meaning(int bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double scale = std::exp2(mantissa_bits);
  const double value = exponent == 0 ? mantissa / scale * std::exp2(1 - bias)
                                     : (1 + mantissa / scale) * std::exp2(exponent - bias);
  return (bits & 0x80) != 0 ? -value : value;
}

template <class T>
T from_bits(int bits) {
  T value;
  value.bits = static_cast<uint8_t>(bits);
  return value;
}

template <class T>
void check_every_number(int exponent_bits, int mantissa_bits, int largest) {
  for (int sign : {0, 0x80})
    for (int i = 0; i <= largest; ++i) {
      const T value = from_bits<T>(sign | i);
      EXPECT_EQ(static_cast<double>(static_cast<float>(value)),
                meaning(sign | i, exponent_bits, mantissa_bits));
      EXPECT_EQ(T(static_cast<float>(value)).bits, value.bits) << (sign | i);
    }
}

// Between two neighbours: below, at and above the middle; the middle rounds to even.
template <class T>
void check_rounding(int largest) {
  for (int i = 0; i < largest; ++i) {
    const float low = static_cast<float>(from_bits<T>(i)),
                high = static_cast<float>(from_bits<T>(i + 1));
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(T(std::nextafter(middle, low)).bits, i);
    EXPECT_EQ(T(middle).bits, i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(T(std::nextafter(middle, high)).bits, i + 1);
    EXPECT_EQ(T(-middle).bits, 0x80 | (i % 2 == 0 ? i : i + 1));
  }
}

template <class T>
void check_ends(float largest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float value :
       {largest, largest * 1.01f, largest * 2, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(static_cast<float>(T(value)), largest);
    EXPECT_EQ(static_cast<float>(T(-value)), -largest);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(T(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(T(-std::nanf("")))));
  EXPECT_EQ(T(0.0f).bits, 0);
  EXPECT_EQ(T(-0.0f).bits, 0x80);
  EXPECT_EQ(T(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Float8, E4M3HasEveryNumberOfItsFormat) { check_every_number<fp8_e4m3>(4, 3, 0x7e); }
TEST(Float8, E5M2HasEveryNumberOfItsFormat) { check_every_number<fp8_e5m2>(5, 2, 0x7b); }
TEST(Float8, E4M3RoundsToNearestEven) { check_rounding<fp8_e4m3>(0x7e); }
TEST(Float8, E5M2RoundsToNearestEven) { check_rounding<fp8_e5m2>(0x7b); }
TEST(Float8, E4M3Saturates) { check_ends<fp8_e4m3>(448.0f); }
TEST(Float8, E5M2Saturates) {
  check_ends<fp8_e5m2>(57344.0f);
  EXPECT_EQ(static_cast<float>(from_bits<fp8_e5m2>(0x7c)), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace trireme::test_float8
