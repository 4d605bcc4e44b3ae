// 8-bit float types of matrix products (Micikevicius et al. 2022, "FP8 Formats for Deep Learning").
//
//   fp8_e4m3   4 bits of exponent, 3 of mantissa: up to 448, no infinities; weights and activations
//   fp8_e5m2   5 and 2: up to 57344; gradients
// Conversion from float32 rounds to nearest, ties to even, and saturates: larger values, infinity
// included, become the largest number. NaN stays NaN. Storage types only: no arithmetic is done in
// them.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/core/host_device.h"

namespace trireme {

// Float with kExponent bits of exponent and kMantissa of mantissa. kInfinities: the largest
// exponent encodes infinity and NaN as in IEEE types; otherwise only its last mantissa is NaN.
template <int kExponent, int kMantissa, bool kInfinities>
struct Float8 {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr uint32_t kNan = 0x7f;
  static constexpr uint32_t kLargest =
      kInfinities ? (((1u << kExponent) - 1) << kMantissa) - 1 : kNan - 1;  // bits, largest finite

  uint8_t bits = 0;
  Float8() = default;
  TRIREME_HOST_DEVICE [[gnu::always_inline]] explicit Float8(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = u >> 31 << 7, magnitude = u & 0x7fffffffu;
    bits = static_cast<uint8_t>(sign | (magnitude > 0x7f800000u ? kNan : rounded(magnitude)));
  }
  TRIREME_HOST_DEVICE [[gnu::always_inline]] explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits) >> 7 << 31;
    const uint32_t exponent = (bits & 0x7fu) >> kMantissa;
    const uint32_t mantissa = bits & ((1u << kMantissa) - 1);
    const bool special = kInfinities ? exponent == (1u << kExponent) - 1 : (bits & 0x7fu) == kNan;
    if (special)
      return std::bit_cast<float>(sign | 0x7f800000u | (mantissa != 0 ? 0x00400000u : 0u));
    if (exponent == 0) {  // subnormal: a multiple of the smallest number, exact in float32
      const float smallest =
          std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - kBias - kMantissa) << 23);
      const float value = static_cast<float>(mantissa) * smallest;
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | (exponent + 127 - kBias) << 23 |
                                mantissa << (23 - kMantissa));
  }

 private:
  // Rounds the bits of a float32 without its sign, not NaN, to those of a Float8.
  TRIREME_HOST_DEVICE [[gnu::always_inline]] static uint32_t rounded(uint32_t magnitude) {
    constexpr uint32_t kFirstNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
    uint32_t out = 0;
    if (magnitude >= kFirstNormal) {
      constexpr int kDropped = 23 - kMantissa;
      const uint32_t half = (1u << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1u);
      // A carry out of the mantissa increments the exponent, as it should.
      out = ((magnitude + half) >> kDropped) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
    } else {
      // The last bit of kAnchor is worth the smallest fp8 number, so that float32 addition rounds.
      constexpr uint32_t kAnchor = static_cast<uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23;
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAnchor);
      out = std::bit_cast<uint32_t>(sum) - kAnchor;
    }
    return out < kLargest ? out : kLargest;
  }
};

using fp8_e4m3 = Float8<4, 3, false>;
using fp8_e5m2 = Float8<5, 2, true>;

// Float8 type of a tensor's bytes: codes are stored as uint8.
enum class Float8Format : uint8_t { kE4M3, kE5M2 };
TRIREME_HOST_DEVICE constexpr float float8_max(Float8Format format) {
  return format == Float8Format::kE4M3 ? 448.0f : 57344.0f;
}

// Elements that share a scale: the whole tensor, 128 consecutive elements of a row, or a block of
// 128 rows by 128 columns.
enum class Float8Scaling : uint8_t { kTensor, kRowGroup, kBlock };

}  // namespace trireme
