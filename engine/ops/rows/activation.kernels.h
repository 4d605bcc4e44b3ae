// Kernels of engine/ops/rows/activation.h.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"
#include "engine/ops/rows/activation_function.h"

namespace trireme::cpu {

template <class T>
struct BiasBackward {
  using F = compute_t<T>;
  F* db;        // (columns)
  const T* dy;  // (rows, columns)
  F* partial;   // (blocks, columns) scratch
  int64_t rows, columns, blocks;
  bool accumulate;
};

// n: number of elements
TRIREME_CPU_KERNEL(activation_forward,
                   (ActivationFunction f, T* y, const T* x, int64_t n, int threads))
TRIREME_CPU_KERNEL(activation_backward,
                   (ActivationFunction f, T* dx, const T* dy, const T* x, int64_t n, int threads))
// gate_up, d_gate_up: (rows, 2 * columns); y, dy: (rows, columns)
TRIREME_CPU_KERNEL(gated_forward, (ActivationFunction f, T* y, const T* gate_up, int64_t rows,
                                   int64_t columns, int threads))
TRIREME_CPU_KERNEL(gated_backward, (ActivationFunction f, T* d_gate_up, const T* dy,
                                    const T* gate_up, int64_t rows, int64_t columns, int threads))
// y: (rows, columns); bias: (columns)
TRIREME_CPU_KERNEL(add_bias, (T * y, const T* bias, int64_t rows, int64_t columns, int threads))
TRIREME_CPU_KERNEL(bias_backward, (const BiasBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels; shapes as in the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void activation_forward(Context& gpu, ActivationFunction f, T* y, const T* x,
                                          int64_t n);
template <class T>
TRIREME_CUDA_DECL void activation_backward(Context& gpu, ActivationFunction f, T* dx, const T* dy,
                                           const T* x, int64_t n);
template <class T>
TRIREME_CUDA_DECL void gated_forward(Context& gpu, ActivationFunction f, T* y, const T* gate_up,
                                     int64_t rows, int64_t columns);
template <class T>
TRIREME_CUDA_DECL void gated_backward(Context& gpu, ActivationFunction f, T* d_gate_up, const T* dy,
                                      const T* gate_up, int64_t rows, int64_t columns);
template <class T>
TRIREME_CUDA_DECL void add_bias(Context& gpu, T* y, const T* bias, int64_t rows, int64_t columns);
template <class T>
TRIREME_CUDA_DECL void bias_backward(Context& gpu, const cpu::BiasBackward<T>& a);

}  // namespace trireme::cuda
