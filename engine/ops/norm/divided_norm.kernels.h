// Kernels of engine/ops/norm/divided_norm.h; shapes as there, with rows = T and columns = C.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// Rows of a matrix with unit stride in its columns.
template <class T>
struct StridedRows {
  T* data;
  int64_t stride;  // elements between rows
};

template <class T>
struct SquareSums {
  compute_t<T>* sums;
  StridedRows<const T> x;
  int64_t rows, columns;
};

template <class T>
struct DividedNormForward {
  using F = compute_t<T>;
  StridedRows<T> y;
  StridedRows<const T> x;
  F* rstd;
  const F* sums;
  const T* w;
  int64_t rows, columns;
  F width, eps;  // width: columns on all ranks together
};

template <class T>
struct DividedNormBackwardWeight {
  using F = compute_t<T>;
  F* dots;
  F *dw, *partial;  // partial: (blocks, columns) scratch
  StridedRows<const T> dy, x;
  const F* rstd;
  const T* w;
  int64_t rows, columns, blocks;
  bool accumulate;
};

template <class T>
struct DividedNormBackwardInput {
  using F = compute_t<T>;
  StridedRows<T> dx;
  StridedRows<const T> dy, x;
  const F *rstd, *dots;
  const T* w;
  int64_t rows, columns;
  F width;  // as in DividedNormForward
};

TRIREME_CPU_KERNEL(square_sums, (const SquareSums<T>& a, int threads))
TRIREME_CPU_KERNEL(divided_norm_forward, (const DividedNormForward<T>& a, int threads))
TRIREME_CPU_KERNEL(divided_norm_backward_weight,
                   (const DividedNormBackwardWeight<T>& a, int threads))
TRIREME_CPU_KERNEL(divided_norm_backward_input, (const DividedNormBackwardInput<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void square_sums(Context& gpu, const cpu::SquareSums<T>& a);
template <class T>
TRIREME_CUDA_DECL void divided_norm_forward(Context& gpu, const cpu::DividedNormForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void divided_norm_backward_weight(Context& gpu,
                                                    const cpu::DividedNormBackwardWeight<T>& a);
template <class T>
TRIREME_CUDA_DECL void divided_norm_backward_input(Context& gpu,
                                                   const cpu::DividedNormBackwardInput<T>& a);

}  // namespace trireme::cuda
