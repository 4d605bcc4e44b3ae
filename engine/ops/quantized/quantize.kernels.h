// Kernels of engine/ops/quantized/quantize.h.
#pragma once

#include "engine/core/convert_float.h"
#include "engine/core/device_memory.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// Operands as in quantize.h, with rows = N and columns = K. W: T, or const T for quantization.
template <class W>
struct Int8Weight {
  W* w;
  uint8_t* codes;
  float* scale;
  int64_t rows, columns;
};
template <class W>
struct Int4Weight {
  W* w;
  uint8_t* codes;
  float *scale, *minimum;  // minimum null: symmetric
  int64_t rows, columns;
};

TRIREME_CPU_KERNEL(quantize_int8, (const Int8Weight<const T>& a, int threads))
TRIREME_CPU_KERNEL(dequantize_int8, (const Int8Weight<T>& a, int threads))
TRIREME_CPU_KERNEL(quantize_int4, (const Int4Weight<const T>& a, int threads))
TRIREME_CPU_KERNEL(dequantize_int4, (const Int4Weight<T>& a, int threads))

// --- shared by the CPU and GPU kernels ---

// range / steps, or 1 if that is 0.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float integer_scale(float range, float steps) {
  const float scale = range / steps;
  return scale > 0.0f ? scale : 1.0f;
}

// Returns the nearest integer in [low, high], ties to even: x + kNoFraction is so large that its
// rounding removes the fraction.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline int nearest_integer(float x, float low,
                                                                      float high) {
  constexpr float kNoFraction = 0x1.8p23f;
  x = x > low ? x : low;
  x = x < high ? x : high;
  return static_cast<int>((x + kNoFraction) - kNoFraction);
}

TRIREME_HOST_DEVICE [[gnu::always_inline]] inline uint8_t int8_code(float w, float scale) {
  return static_cast<uint8_t>(nearest_integer(w / scale, -127.0f, 127.0f));
}
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float int8_value(uint8_t code, float scale) {
  return static_cast<float>(static_cast<int8_t>(code)) * scale;
}

// Scale of a 4-bit group: w ~ scale * (code - 8) if symmetric, else minimum + scale * code.
struct Int4Scale {
  float scale, minimum;
  bool symmetric;
  TRIREME_HOST_DEVICE [[gnu::always_inline]] unsigned code(float w) const {
    return static_cast<unsigned>(symmetric ? 8 + nearest_integer(w / scale, -7.0f, 7.0f)
                                           : nearest_integer((w - minimum) / scale, 0.0f, 15.0f));
  }
  TRIREME_HOST_DEVICE [[gnu::always_inline]] float value(unsigned code) const {
    const int integer = static_cast<int>(code & 15u);
    return symmetric ? static_cast<float>(integer - 8) * scale
                     : static_cast<float>(integer) * scale + minimum;
  }
};
// Scale of a group whose smallest and largest numbers are `low` and `high`.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline Int4Scale int4_scale(float low, float high,
                                                                       bool symmetric) {
  const float largest = -low > high ? -low : high;
  return {symmetric ? integer_scale(largest, 7.0f) : integer_scale(high - low, 15.0f), low,
          symmetric};
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void quantize_int8(Context& gpu, const cpu::Int8Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_int8(Context& gpu, const cpu::Int8Weight<T>& a);
template <class T>
TRIREME_CUDA_DECL void quantize_int4(Context& gpu, const cpu::Int4Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_int4(Context& gpu, const cpu::Int4Weight<T>& a);

}  // namespace trireme::cuda
