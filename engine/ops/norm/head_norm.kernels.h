// Kernels of engine/ops/norm/head_norm.h; shapes as there, with rows = T, heads = H and width = D.
// Vector v of the operands is head v % heads of row v / heads.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct HeadRows {
  T* data;
  int64_t row, head;  // elements between rows, and between heads
};

template <class T>
struct HeadNormForward {
  using F = compute_t<T>;
  HeadRows<T> y;
  HeadRows<const T> x;
  F* rstd;  // (rows, heads)
  const T* w;
  int64_t rows, heads, width;
  F eps;
  F unit;  // added to w
};

template <class T>
struct HeadNormBackward {
  using F = compute_t<T>;
  HeadRows<T> dx;
  HeadRows<const T> dy, x;
  const F* rstd;
  const T* w;
  F *dw, *partial;  // partial: (blocks, width) scratch
  int64_t rows, heads, width, blocks;
  bool accumulate;
  F unit;  // added to w
};

TRIREME_CPU_KERNEL(head_norm_forward, (const HeadNormForward<T>& a, int threads))
TRIREME_CPU_KERNEL(head_norm_backward, (const HeadNormBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void head_norm_forward(Context& gpu, const cpu::HeadNormForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void head_norm_backward(Context& gpu, const cpu::HeadNormBackward<T>& a);

}  // namespace trireme::cuda
