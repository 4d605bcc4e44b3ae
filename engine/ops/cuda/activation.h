// GPU kernels of engine/ops/activation.h; shapes as in the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/activation.h"

namespace trireme::cuda {

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
