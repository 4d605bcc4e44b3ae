// Kernels of engine/ops/rows/elementwise.h. n: number of elements.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/core/random.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct DropoutArgs {
  T* y;  // y, x, residual: (num_rows, columns)
  const T* x;
  const T* residual;    // null: none
  const int64_t* rows;  // (num_rows): global token index of each row of x
  int64_t num_rows, columns;
  int64_t first, total;  // of DropoutPart, with total > 0
  uint32_t threshold;    // drops an element if the top 24 bits of its random word are below this
  compute_t<T> scale;    // 1 / (1 - p)
  RandomKey key;
};

TRIREME_CPU_KERNEL(add, (T * y, const T* a, const T* b, int64_t n, int threads))
TRIREME_CPU_KERNEL(scale, (T * y, const T* x, compute_t<T> factor, int64_t n, int threads))
// y: n elements of dtype `to`
TRIREME_CPU_KERNEL(cast, (void* y, DType to, const T* x, int64_t n, int threads))
TRIREME_CPU_KERNEL(dropout, (const DropoutArgs<T>& args, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void add(Context& gpu, T* y, const T* a, const T* b, int64_t n);
template <class T>
TRIREME_CUDA_DECL void scale(Context& gpu, T* y, const T* x, compute_t<T> factor, int64_t n);
template <class T>
TRIREME_CUDA_DECL void cast(Context& gpu, void* y, DType to, const T* x, int64_t n);
// y (rows, columns), ranges (rows, 2)
template <class T>
TRIREME_CUDA_DECL void keep_columns(Context& gpu, T* y, const int32_t* ranges, int64_t rows,
                                    int64_t columns);
template <class T>
TRIREME_CUDA_DECL void dropout(Context& gpu, const cpu::DropoutArgs<T>& args);

}  // namespace trireme::cuda
