// Kernels of engine/ops/embedding.h on a GPU. An id outside the vocabulary gives a row of NaN in the
// forward pass and is left out in the backward pass.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/embedding.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void embedding_forward(Context& gpu, const cpu::EmbeddingForward<T>& a);

// Room for 3 * rows numbers: the tokens in the order of their ids.
struct TokenOrder {
  int32_t* place;   // of token t among them
  int32_t* tokens;  // by place
  int32_t* ids;     // theirs, by place
};
template <class T>
TRIREME_CUDA_DECL void embedding_backward(Context& gpu, const cpu::EmbeddingBackward<T>& a,
                                          const TokenOrder& order);

}  // namespace trireme::cuda
