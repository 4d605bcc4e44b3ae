// Kernels of engine/ops/rows/clamped_gate.h; shapes as there.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct ClampedGateRows {
  compute_t<T> limit, slope, up_offset;  // of ClampedGate
  int64_t rows, columns;                 // of y; gate_up has 2 * columns
};

TRIREME_CPU_KERNEL(clamped_gate_forward,
                   (const ClampedGateRows<T>& a, T* y, const T* gate_up, int threads))
TRIREME_CPU_KERNEL(clamped_gate_backward, (const ClampedGateRows<T>& a, T* d_gate_up, const T* dy,
                                           const T* gate_up, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void clamped_gate_forward(Context& gpu, const cpu::ClampedGateRows<T>& a, T* y,
                                            const T* gate_up);
template <class T>
TRIREME_CUDA_DECL void clamped_gate_backward(Context& gpu, const cpu::ClampedGateRows<T>& a,
                                             T* d_gate_up, const T* dy, const T* gate_up);

}  // namespace trireme::cuda
