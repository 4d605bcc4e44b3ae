// Element types and the one helper that turns a run-time dtype into a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/core/error.h"

namespace trireme {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU16, kU8 };

// Brain float: the upper half of an IEEE float32, rounded to nearest even. Conversions are always
// inlined because kernels use them (engine/ops/cpu/isa.h).
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  [[gnu::always_inline]] explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // Adding the rounding increment would turn a NaN into infinity or zero; keep it quiet instead.
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>((is_nan ? (u | 0x00400000u) : rounded) >> 16);
  }
  [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE half precision; the compiler's _Float16 does the conversions.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  [[gnu::always_inline]] explicit f16(float value)
      : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  [[gnu::always_inline]] explicit operator float() const {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

int64_t dtype_size(DType dtype);           // bytes of one element
std::string_view dtype_name(DType dtype);  // "float32", "bfloat16", ... (HuggingFace's words)
bool is_float(DType dtype);
double dtype_eps(DType dtype);  // distance from 1 to the next larger value; float types only
inline std::string text(DType dtype) { return std::string(dtype_name(dtype)); }

// The type in which elements of T are computed: double for double, float for the others; sum_dtype
// is the same as a dtype, for sums and statistics over elements.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline DType sum_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Calls f.template operator()<T>() with T in {double, float, bf16, f16}; `op` names the caller.
template <class F>
decltype(auto) dispatch_float(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64: return f.template operator()<double>();
    case DType::kF32: return f.template operator()<float>();
    case DType::kBF16: return f.template operator()<bf16>();
    case DType::kF16: return f.template operator()<f16>();
    default: break;
  }
  TRIREME_UNREACHABLE(op, " has no kernel for dtype ", dtype);
}

}  // namespace trireme
