// Kernels of engine/ops/quantized/quantized_weight.h.
//
// A weight is stored in groups of 16 rows; a group has, for each block of 32 columns, the 16 scales
// (float16) and then the codes in pieces of 64 bytes: piece v has 4 neighbouring columns of each of
// the 16 rows, so that a vector of them is multiplied by 4 codes of x and the sums of 16 outputs
// are adjacent lanes. A group is one sequential stream of memory.
//   8 bits   8 pieces; columns 4 v .. 4 v + 3 as int8
//   4 bits   4 pieces; columns 4 v .. 4 v + 3 in the lower four bits of each byte, columns
//            4 v + 16 .. 4 v + 19 in the upper ones, as unsigned values whose zero is 8
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"
#include "engine/ops/rows/embedding.kernels.h"

namespace trireme::cpu {

inline constexpr int64_t kBlockColumns = 32, kGroupRows = 16, kPieceBytes = 64;
inline constexpr int64_t kGroupScaleBytes = 2 * kGroupRows;
constexpr int64_t group_pieces(bool four_bits) { return four_bits ? 4 : 8; }
constexpr int64_t group_block_bytes(bool four_bits) {
  return kGroupScaleBytes + group_pieces(four_bits) * kPieceBytes;
}

// Quantization of rows of x to int8: codes (rows, 32 * blocks); scale of each block and sum of its
// codes (rows, blocks). Codes and sum are zero if the scale is NaN.
template <class T>
struct QuantizeRows {
  const T* x;
  int64_t x_stride, rows, columns, blocks;  // x_stride: elements between rows; blocks: per row
  int8_t* codes;
  float* scale;
  int32_t* sum;
};

// T: type of y, float or a 16-bit type.
template <class T>
struct BlockProduct {
  const uint8_t* w;
  bool four_bits;
  int64_t n, blocks, m;  // outputs, blocks of a row, rows of y
  const int8_t* x;       // (m, 32 * blocks)
  const float* x_scale;  // (m, blocks)
  const int32_t* x_sum;  // (m, blocks)
  T* y;                  // (m, n)
  int64_t y_stride;      // elements between rows
  const T* bias;         // (n) or null
};

TRIREME_CPU_KERNEL(quantize_rows, (const QuantizeRows<T>& a, int threads))
// The AVX-512 kernel requires VNNI: a processor without it uses the AVX2 kernel.
TRIREME_CPU_KERNEL(block_product, (const BlockProduct<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the byte layout of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// out (rows, columns): w decoded.
template <class T>
struct DecodeBlocks {
  T* out;
  const uint8_t* w;
  bool four_bits;
  int64_t rows, columns, blocks;
};
template <class T>
TRIREME_CUDA_DECL void decode_blocks(Context& gpu, const DecodeBlocks<T>& a);
// embedding_forward() of a table in blocks; `a.table` and `a.accumulate` are not read. Ids outside
// the vocabulary produce rows of NaN.
template <class T>
TRIREME_CUDA_DECL void embedding_blocks(Context& gpu, const cpu::EmbeddingForward<T>& a,
                                        const uint8_t* table, bool four_bits);

template <class T>
TRIREME_CUDA_DECL void quantize_rows(Context& gpu, const cpu::QuantizeRows<T>& a);
// Tensor cores sum the integers. The blocks of a row are split over warps, whose sums are added in
// order: the bits of a row of y do not depend on the other rows.
template <class T>
TRIREME_CUDA_DECL void block_product(Context& gpu, const cpu::BlockProduct<T>& a);

}  // namespace trireme::cuda
