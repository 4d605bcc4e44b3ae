// GPU kernels of engine/ops/norm.h, with the arguments of the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/norm.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void norm_forward(Context& gpu, const cpu::NormForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void norm_backward(Context& gpu, const cpu::NormBackward<T>& a);

}  // namespace trireme::cuda
