// Kernels of engine/ops/block_weight.h on a GPU, which read the bytes as the CPU's do
// (engine/ops/cpu/block_weight.h).
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/block_weight.h"
#include "engine/ops/cpu/embedding.h"

namespace trireme::cuda {

// out (rows, columns): what the rows of w stand for.
template <class T>
struct DecodeBlocks {
  T* out;
  const uint8_t* w;
  bool four_bits;
  int64_t rows, columns, blocks;
};
template <class T>
TRIREME_CUDA_DECL void decode_blocks(Context& gpu, const DecodeBlocks<T>& a);
// embedding_forward() of such a table: `a.table` is not read. Ids of no entry make rows of NaN.
template <class T>
TRIREME_CUDA_DECL void embedding_blocks(Context& gpu, const cpu::EmbeddingForward<T>& a,
                                        const uint8_t* table, bool four_bits);

template <class T>
TRIREME_CUDA_DECL void quantize_rows(Context& gpu, const cpu::QuantizeRows<T>& a);
// Integers are summed by tensor cores. The blocks of a row are divided among warps, whose sums are
// added in their order: a row of y has the same bits whatever rows are beside it.
template <class T>
TRIREME_CUDA_DECL void block_product(Context& gpu, const cpu::BlockProduct<T>& a);

}  // namespace trireme::cuda
