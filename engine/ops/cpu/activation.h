// Kernels of engine/ops/activation.h.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/activation_function.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

template <class T>
struct BiasBackward {
  using F = compute_t<T>;
  F* db;
  const T* dy;
  F* partial;  // (blocks, columns)
  int64_t rows, columns, blocks;
  bool accumulate;
};

TRIREME_CPU_KERNEL(activation_forward,
                   (ActivationFunction f, T* y, const T* x, int64_t n, int threads))
TRIREME_CPU_KERNEL(activation_backward,
                   (ActivationFunction f, T* dx, const T* dy, const T* x, int64_t n, int threads))
// gate_up, d_gate_up: (rows, 2 columns); y, dy: (rows, columns)
TRIREME_CPU_KERNEL(gated_forward, (ActivationFunction f, T* y, const T* gate_up, int64_t rows,
                                   int64_t columns, int threads))
TRIREME_CPU_KERNEL(gated_backward, (ActivationFunction f, T* d_gate_up, const T* dy,
                                    const T* gate_up, int64_t rows, int64_t columns, int threads))
TRIREME_CPU_KERNEL(add_bias, (T * y, const T* bias, int64_t rows, int64_t columns, int threads))
TRIREME_CPU_KERNEL(bias_backward, (const BiasBackward<T>& a, int threads))

}  // namespace trireme::cpu
