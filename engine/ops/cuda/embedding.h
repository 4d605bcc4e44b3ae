// GPU kernels of engine/ops/embedding.h. An id outside the vocabulary gives a row of NaN in the
// forward pass and is skipped in the backward pass.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/embedding.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void embedding_forward(Context& gpu, const cpu::EmbeddingForward<T>& a);

// Tokens sorted by their rows of the table, (rows) each.
struct SortedTokens {
  int32_t *tokens, *rows;
};
// Scratch of the sort.
struct TokenOrder {
  SortedTokens sorted, other;
  int32_t* counts;  // (kDigitBuckets, order_chunks(rows)), of expert_order.h
  int64_t* totals;  // (kDigitBuckets)
};
template <class T>
TRIREME_CUDA_DECL void embedding_backward(Context& gpu, const cpu::EmbeddingBackward<T>& a,
                                          const TokenOrder& order);

}  // namespace trireme::cuda
