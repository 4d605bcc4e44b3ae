// GPU kernels of engine/ops/block_weight.h, with the byte layout of the CPU kernels
// (engine/ops/cpu/block_weight.h).
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/block_weight.h"
#include "engine/ops/cpu/embedding.h"

namespace trireme::cuda {

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
// embedding_forward() of such a table: `a.table` is not read. Invalid ids produce rows of NaN.
template <class T>
TRIREME_CUDA_DECL void embedding_blocks(Context& gpu, const cpu::EmbeddingForward<T>& a,
                                        const uint8_t* table, bool four_bits);

template <class T>
TRIREME_CUDA_DECL void quantize_rows(Context& gpu, const cpu::QuantizeRows<T>& a);
// Tensor cores sum the integers. The blocks of a row are divided among warps, whose sums are added
// in order: a row of y has the same bits for any other rows.
template <class T>
TRIREME_CUDA_DECL void block_product(Context& gpu, const cpu::BlockProduct<T>& a);

}  // namespace trireme::cuda
