// Kernels of engine/ops/latent_heads.h.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

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
