// Element types, and the helper that maps a run-time dtype to a C++ type.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/float16.h"

namespace trireme {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU16, kU8 };

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
std::string_view dtype_name(DType dtype);  // "float32", "bfloat16", ... (as in HuggingFace)
bool is_float(DType dtype);
double dtype_eps(DType dtype);  // machine epsilon: from 1 to the next larger value; CheckFailed
                                // unless is_float(dtype)
inline std::string text(DType dtype) { return std::string(dtype_name(dtype)); }

// compute_t (engine/core/float16.h) as a dtype, for sums and statistics over elements: kF64 for
// kF64, kF32 for all others.
inline DType sum_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Calls f.template operator()<T>() with T in {double, float, bf16, f16} and returns its result.
// CheckFailed naming the caller `op` for any other dtype.
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
