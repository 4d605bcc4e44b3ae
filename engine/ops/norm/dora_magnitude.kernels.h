// Kernels of engine/ops/norm/dora_magnitude.h; shapes as there.
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
  int64_t rows, columns, rank;  // O, I, r
  F scale;
};

template <class T>
struct ScaleOutputs {
  using F = compute_t<T>;
  T* y;
  const T *x, *m;  // m, squares: both null if g is 1
  const F* squares;
  int64_t rows, columns;  // T, O
  int64_t y_row, x_row;   // elements between rows
  F shift;
  bool accumulate;
};

template <class T>
struct MagnitudeBackward {
  using F = compute_t<T>;
  F* dm;
  const T *dy, *u;
  const F* squares;
  F* partial;                     // (blocks, columns) scratch
  int64_t rows, columns, blocks;  // T, O, blocks of rows
  int64_t dy_row, u_row;          // elements between rows
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
