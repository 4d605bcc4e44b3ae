// Kernels of engine/ops/rows/embedding.h. The ids of CPU kernels have been checked.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct EmbeddingForward {
  T* y;
  const T* table;
  const int32_t* ids;
  int64_t rows, columns;
  int64_t first_entry, entries;  // rows [first_entry, first_entry + entries) of the vocabulary
  int64_t vocabulary;            // rows of all shards
  bool accumulate;
};

template <class T>
struct EmbeddingBackward {
  compute_t<T>* d_table;
  const T* dy;
  const int32_t* ids;
  int64_t rows, columns;
  int64_t first_entry, entries;
};

TRIREME_CPU_KERNEL(embedding_forward, (const EmbeddingForward<T>& a, int threads))
// d_table[ids[t]] += dy[t]
TRIREME_CPU_KERNEL(embedding_backward, (const EmbeddingBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels. An id outside the vocabulary gives a row of NaN in the forward pass and is skipped
// in the backward pass.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void embedding_forward(Context& gpu, const cpu::EmbeddingForward<T>& a);

// Tokens sorted by table row: token index and table row, (rows) each.
struct SortedTokens {
  int32_t *tokens, *rows;
};
// Scratch of the sort.
struct TokenOrder {
  SortedTokens sorted, other;
  int32_t* counts;  // (kDigitBuckets, order_chunks(rows)), of counting_scratch.cuda.h
  int64_t* totals;  // (kDigitBuckets)
};
template <class T>
TRIREME_CUDA_DECL void embedding_backward(Context& gpu, const cpu::EmbeddingBackward<T>& a,
                                          const TokenOrder& order);

}  // namespace trireme::cuda
