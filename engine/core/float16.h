// 16-bit float types of tensors. Light enough for every kernel file, of the CPU and of CUDA.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/core/host_device.h"

namespace trireme {

// Brain float: the upper half of an IEEE float32, rounded to nearest even. Conversions are always
// inlined because kernels use them (engine/ops/backend/isa.h).
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  TRIREME_HOST_DEVICE [[gnu::always_inline]] explicit bf16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // Adding the rounding increment could turn a NaN into infinity or zero: it gets its quiet bit
    // set instead.
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>((is_nan ? (u | 0x00400000u) : rounded) >> 16);
#endif
  }
  TRIREME_HOST_DEVICE [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// Conversions of f16 for host code that nvcc compiles, whose front end does not know _Float16.
uint16_t float_to_half_bits(float value);
float half_bits_to_float(uint16_t bits);

// IEEE half precision; the compiler's _Float16, or the GPU's instruction, does the conversions.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
#if defined(__CUDA_ARCH__)
  TRIREME_HOST_DEVICE explicit f16(float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  TRIREME_HOST_DEVICE explicit operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#elif defined(__CUDACC__)
  TRIREME_HOST_DEVICE explicit f16(float value) : bits(float_to_half_bits(value)) {}
  TRIREME_HOST_DEVICE explicit operator float() const { return half_bits_to_float(bits); }
#else
  [[gnu::always_inline]] explicit f16(float value)
      : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  [[gnu::always_inline]] explicit operator float() const {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }
#endif
};

// Type used for arithmetic on elements of T: double for double, float for the others.
template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class T>
using compute_t = typename ComputeType<T>::type;

}  // namespace trireme
