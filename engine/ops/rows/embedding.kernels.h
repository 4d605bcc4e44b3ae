// Kernels of engine/ops/rows/embedding.h. rows: number of tokens; columns: C. The CPU kernels
// require ids in [0, vocabulary).
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct EmbeddingForward {
  T* y;                // (rows, columns)
  const T* table;      // (entries, columns)
  const int32_t* ids;  // (rows)
  int64_t rows, columns;
  int64_t first_entry, entries;  // rows [first_entry, first_entry + entries) of the vocabulary
  int64_t vocabulary;            // rows of all shards
  bool accumulate;
};

template <class T>
struct EmbeddingBackward {
  compute_t<T>* d_table;  // (entries, columns)
  const T* dy;            // (rows, columns)
  const int32_t* ids;     // (rows)
  int64_t rows, columns;
  int64_t first_entry, entries;  // as in EmbeddingForward
};

TRIREME_CPU_KERNEL(embedding_forward, (const EmbeddingForward<T>& a, int threads))
// d_table[ids[t] - first_entry] += dy[t], unless that row is in another shard
TRIREME_CPU_KERNEL(embedding_backward, (const EmbeddingBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels. An id outside the vocabulary gives a row of NaN in the forward pass and is skipped
// in the backward pass.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void embedding_forward(Context& gpu, const cpu::EmbeddingForward<T>& a);

// Tokens sorted by row of d_table, one element for each token in both arrays. tokens: index of the
// token; rows: its row of d_table, or `entries` for an id without a row here.
struct SortedTokens {
  int32_t *tokens, *rows;
};
// Scratch of the sort; either of the two pairs of arrays may have its result.
struct TokenOrder {
  SortedTokens sorted, other;
  int32_t* counts;  // (kDigitBuckets, order_chunks(tokens)), of counting_scratch.cuda.h
  int64_t* totals;  // (kDigitBuckets)
};
template <class T>
TRIREME_CUDA_DECL void embedding_backward(Context& gpu, const cpu::EmbeddingBackward<T>& a,
                                          const TokenOrder& order);

}  // namespace trireme::cuda
