// Kernels of engine/ops/norm/dora_magnitude.h.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct AdaptedRowSquares {
  using F = compute_t<T>;
  F* squares;
  const T *w, *a, *b;
  int64_t rows, columns, rank;
  F scale;
};

template <class T>
struct ScaleOutputs {
  using F = compute_t<T>;
  T* y;
  const T *x, *m;  // m, squares: null where g is 1
  const F* squares;
  int64_t rows, columns;
  int64_t y_row, x_row;  // strides
  F shift;
  bool accumulate;
};

template <class T>
struct MagnitudeBackward {
  using F = compute_t<T>;
  F* dm;
  const T *dy, *u;
  const F* squares;
  F* partial;  // (blocks, columns)
  int64_t rows, columns, blocks;
  int64_t dy_row, u_row;  // strides
  bool accumulate;
};

TRIREME_CPU_KERNEL(adapted_row_squares, (const AdaptedRowSquares<T>& a, int threads))
TRIREME_CPU_KERNEL(scale_outputs, (const ScaleOutputs<T>& a, int threads))
TRIREME_CPU_KERNEL(magnitude_backward, (const MagnitudeBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void adapted_row_squares(Context& gpu, const cpu::AdaptedRowSquares<T>& a);
template <class T>
TRIREME_CUDA_DECL void scale_outputs(Context& gpu, const cpu::ScaleOutputs<T>& a);
template <class T>
TRIREME_CUDA_DECL void magnitude_backward(Context& gpu, const cpu::MagnitudeBackward<T>& a);

}  // namespace trireme::cuda
