// Kernels of engine/ops/moe/router_noise.h on a GPU; shapes as there, with tokens = T, count = E.
#pragma once

#include "engine/core/random.h"
#include "engine/device/context.h"

namespace trireme::cuda {

// T: float or double.
template <class T>
struct NoisyLogits {
  T *noisy, *noise;
  const T *logits, *raw;
  const int64_t* rows;
  int64_t tokens, count;
  RandomKey key;
};
template <class T>
TRIREME_CUDA_DECL void noisy_logits(Context& gpu, const NoisyLogits<T>& a);

template <class T>
struct NoisyLoad {
  double* load;  // (count), +=
  const T *noisy, *logits, *raw;
  const uint8_t* valid;  // or null
  int64_t tokens, count, k;
  double* partial;  // (blocks, count) scratch
  int64_t blocks;   // blocks of tokens, one per warp
};
template <class T>
TRIREME_CUDA_DECL void noisy_load(Context& gpu, const NoisyLoad<T>& a);

template <class T>
struct NoisyBackward {
  T *d_logits, *d_raw;
  const T *noise, *noisy, *logits, *raw;
  const double* d_load;
  const uint8_t* valid;  // or null
  int64_t tokens, count, k;
};
template <class T>
TRIREME_CUDA_DECL void noisy_backward(Context& gpu, const NoisyBackward<T>& a);

}  // namespace trireme::cuda
