// Kernels of engine/ops/moe/expert_rows.h; shapes as there. Pairs and places are those of
// order_by_expert(): the kernels do not check their range.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct GatherRows {
  T* out;
  const T* x;
  const int32_t* pairs;
  int64_t rows, columns, k;  // rows: n, of out; columns: C
};

template <class T>
struct CombineRows {
  T* y;
  const T* rows;
  const int32_t* places;
  const compute_t<T>* weights;  // or null: all 1
  int64_t tokens, columns, k;   // tokens: T, rows of y
};

template <class T>
struct CombineRowsBackward {
  T* d_rows;
  compute_t<T>* d_weights;
  const T *dy, *rows;
  const int32_t* places;
  const compute_t<T>* weights;
  int64_t tokens, columns, k;
};

template <class T>
struct ScaleRows {
  T* y;
  const T* x;
  const compute_t<T>* gate;
  int64_t rows, columns;
  bool accumulate;
};

template <class T>
struct DotRows {
  compute_t<T>* out;
  const T *a, *b;
  int64_t rows, columns;
};

TRIREME_CPU_KERNEL(gather_rows, (const GatherRows<T>& a, int threads))
TRIREME_CPU_KERNEL(combine_rows, (const CombineRows<T>& a, int threads))
TRIREME_CPU_KERNEL(combine_rows_backward, (const CombineRowsBackward<T>& a, int threads))
TRIREME_CPU_KERNEL(scale_rows, (const ScaleRows<T>& a, int threads))
TRIREME_CPU_KERNEL(dot_rows, (const DotRows<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void gather_rows(Context& gpu, const cpu::GatherRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void combine_rows(Context& gpu, const cpu::CombineRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void combine_rows_backward(Context& gpu, const cpu::CombineRowsBackward<T>& a);
template <class T>
TRIREME_CUDA_DECL void scale_rows(Context& gpu, const cpu::ScaleRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void dot_rows(Context& gpu, const cpu::DotRows<T>& a);

}  // namespace trireme::cuda
