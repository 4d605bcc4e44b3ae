// Kernels of engine/ops/norm/norm.h; shapes as there, with rows = T and columns = C. RMSNorm is
// LayerNorm without mean and bias: null `mean`, `b` and `db`.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct NormForward {
  using F = compute_t<T>;
  T *y, *h;  // h: null without residual
  F *mean, *rstd;
  const T *x, *residual, *w, *b;
  int64_t rows, columns;
  F eps;
  F unit;  // added to w: 0 or 1
};

template <class T>
struct NormBackward {
  using F = compute_t<T>;
  T* dx;
  F *dw, *db;
  const T *dy, *dh_in, *h, *w;  // dh_in: null when absent
  const F *mean, *rstd;
  F* partial;  // scratch: (blocks, columns) for dw, then the same for db unless it is null
  int64_t rows, columns, blocks;
  bool accumulate;
  F unit;  // added to w: 0 or 1
};

TRIREME_CPU_KERNEL(norm_forward, (const NormForward<T>& a, int threads))
TRIREME_CPU_KERNEL(norm_backward, (const NormBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void norm_forward(Context& gpu, const cpu::NormForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void norm_backward(Context& gpu, const cpu::NormBackward<T>& a);

}  // namespace trireme::cuda
