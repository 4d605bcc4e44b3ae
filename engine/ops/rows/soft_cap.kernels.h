// Kernels of engine/ops/rows/soft_cap.h. n: number of elements.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

TRIREME_CPU_KERNEL(soft_cap_forward, (T * y, const T* x, int64_t n, compute_t<T> cap, int threads))
TRIREME_CPU_KERNEL(soft_cap_backward,
                   (T * d, const compute_t<T>* y, int64_t n, compute_t<T> cap, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void soft_cap_forward(Context& gpu, T* y, const T* x, int64_t n,
                                        compute_t<T> cap);
template <class T>
TRIREME_CUDA_DECL void soft_cap_backward(Context& gpu, T* d, const compute_t<T>* y, int64_t n,
                                         compute_t<T> cap);

}  // namespace trireme::cuda
