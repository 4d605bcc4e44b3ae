// Kernels of engine/ops/compression/block_code.h.
#pragma once

#include "engine/core/convert_float.h"
#include "engine/core/device_memory.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// Partial sums of a 1-bit scale: element i is added to sum i % kScaleSums, in order; the sums are
// then added as a tree, always the two at the distance of half their number.
inline constexpr int kScaleSums = 32;

struct BlockShape {
  int64_t rows, columns, block;
  int64_t blocks;     // per row
  int64_t row_bytes;  // codes of a row
  int bits;
};

template <class T>
struct BlockEncode {
  const T* x;
  compute_t<T>* residual;  // may be null
  float* scale;
  uint8_t* codes;
  BlockShape shape;
};
template <class T>
struct BlockDecode {
  T* y;
  const float* scale;
  const uint8_t* codes;
  BlockShape shape;
  bool add;
};

TRIREME_CPU_KERNEL(encode_blocks, (const BlockEncode<T>& a, int threads))
TRIREME_CPU_KERNEL(decode_blocks, (const BlockDecode<T>& a, int threads))

// --- shared by the CPU and GPU kernels ---

// Elements and codes of a block of a row.
struct QuantBlockRange {
  int64_t element, code;  // the first one of x, the first byte of its codes
  int64_t width;          // columns
};
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline QuantBlockRange quant_block_range(
    const BlockShape& s, int64_t row, int64_t block) {
  const int64_t first = block * s.block, left = s.columns - first;
  return {row * s.columns + first, row * s.row_bytes + first * s.bits / 8,
          left < s.block ? left : s.block};
}

// `statistic`: the largest magnitude of the block, or the mean one for 1 bit.
template <class C>
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float block_scale(C statistic, int bits) {
  const C scale = bits == 8 ? statistic / C(127) : bits == 4 ? statistic / C(7) : statistic;
  const auto rounded = static_cast<float>(scale);
  return rounded < 0x1p-126f ? 0.0f : rounded;  // NaN stays
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void encode_blocks(Context& gpu, const cpu::BlockEncode<T>& a);
template <class T>
TRIREME_CUDA_DECL void decode_blocks(Context& gpu, const cpu::BlockDecode<T>& a);

}  // namespace trireme::cuda
