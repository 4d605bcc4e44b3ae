// Kernels of engine/ops/quantized/float8.h.
#pragma once

#include <bit>

#include "engine/core/convert_float.h"
#include "engine/core/device_memory.h"
#include "engine/core/float8.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

struct Float8Scales {
  float* scale;       // (tensors)
  float* history;     // (tensors, length); null: scale from amax alone
  const float* amax;  // (tensors)
  int64_t tensors, length;
  float largest;  // of the format
  float margin;   // the factor 2^-margin
};

// group_rows: 0: one scale for all elements; 1 or 128: one for each group of so many rows and 128
// columns of the codes. x is (rows, columns); the codes are too, but (columns, rows) in
// quantize_float8_transposed().
template <class T>
struct QuantizeFloat8 {
  uint8_t* codes;
  float* inverse;
  const T* x;
  const float* scale;  // of all elements; null: the kernel computes one per group
  int64_t rows, columns, group_rows;
  Float8Format format;
};
template <class T>
struct DequantizeFloat8 {
  T* y;
  const uint8_t* codes;
  const float* inverse;
  int64_t rows, columns, group_rows;
  Float8Format format;
};

TRIREME_CPU_KERNEL(amax, (float* out, const T* x, int64_t n, bool accumulate, int threads))
TRIREME_CPU_KERNEL(quantize_float8, (const QuantizeFloat8<T>& a, int threads))
TRIREME_CPU_KERNEL(quantize_float8_transposed, (const QuantizeFloat8<T>& a, int threads))
TRIREME_CPU_KERNEL(dequantize_float8, (const DequantizeFloat8<T>& a, int threads))

// --- shared by the CPU and GPU kernels ---

// The bits of |float32(x)|: ordered as the values are, NaN above all.
template <class T>
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline uint32_t magnitude_bits(T x) {
  return std::bit_cast<uint32_t>(convert_float<float>(x)) & 0x7fffffffu;
}

// largest / amax * margin, at most the largest float32; `otherwise` if amax is 0 or not finite.
// largest: of the format; margin: the factor 2^-margin.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float float8_scale(float largest, float amax,
                                                                     float margin,
                                                                     float otherwise) {
  if (!(amax > 0.0f) || amax - amax != 0.0f) return otherwise;
  constexpr float kMax = 0x1.fffffep127f;
  const float scale = largest / amax * margin;
  return scale > kMax ? kMax : scale;
}

// Length of a row of `inverse` for blocks of 128 by 128, with padding.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline int64_t float8_blocks_in_row(int64_t columns) {
  return (columns + 511) / 512 * 4;
}

// Index in `inverse` of the group of element (row, column) of codes (rows, columns).
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline int64_t float8_group(int64_t group_rows,
                                                                       int64_t rows,
                                                                       int64_t columns, int64_t row,
                                                                       int64_t column) {
  if (group_rows == 0) return 0;
  if (group_rows == 1) return column / 128 * rows + row;
  return row / 128 * float8_blocks_in_row(columns) + column / 128;
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void amax(Context& gpu, float* out, const T* x, int64_t n, bool accumulate);
TRIREME_CUDA_DECL void update_float8_scales(Context& gpu, const cpu::Float8Scales& a);
template <class T>
TRIREME_CUDA_DECL void quantize_float8(Context& gpu, const cpu::QuantizeFloat8<T>& a);
template <class T>
TRIREME_CUDA_DECL void quantize_float8_transposed(Context& gpu, const cpu::QuantizeFloat8<T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_float8(Context& gpu, const cpu::DequantizeFloat8<T>& a);

}  // namespace trireme::cuda
