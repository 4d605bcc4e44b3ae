// GPU kernels of engine/ops/weight_norm.h, with the arguments of the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/weight_norm.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void adapted_row_squares(Context& gpu, const cpu::AdaptedRowSquares<T>& a);
template <class T>
TRIREME_CUDA_DECL void scale_outputs(Context& gpu, const cpu::ScaleOutputs<T>& a);
template <class T>
TRIREME_CUDA_DECL void magnitude_backward(Context& gpu, const cpu::MagnitudeBackward<T>& a);

}  // namespace trireme::cuda
