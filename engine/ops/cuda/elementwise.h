// Kernels of engine/ops/elementwise.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/elementwise.h"

namespace trireme::cuda {

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
