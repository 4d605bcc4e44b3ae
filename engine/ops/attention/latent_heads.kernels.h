// Kernels of engine/ops/attention/latent_heads.h.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

struct LatentSizes {
  int64_t tokens, heads;
  int64_t nope, rope, value;  // Dn, Dr, Dv
};

template <class T>
struct LatentHeadsForward {
  LatentSizes s;
  T *k, *v;
  const T *kv, *k_rope;
};

template <class T>
struct LatentHeadsBackward {
  LatentSizes s;
  T *d_kv, *d_k_rope;
  const T *dk, *dv;
};

TRIREME_CPU_KERNEL(latent_heads_forward, (const LatentHeadsForward<T>& a, int threads))
TRIREME_CPU_KERNEL(latent_heads_backward, (const LatentHeadsBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the argument structures of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void latent_heads_forward(Context& gpu, const cpu::LatentHeadsForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void latent_heads_backward(Context& gpu, const cpu::LatentHeadsBackward<T>& a);

}  // namespace trireme::cuda
