// GPU kernels of engine/ops/head_norm.h, with the arguments of the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/head_norm.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void head_norm_forward(Context& gpu, const cpu::HeadNormForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void head_norm_backward(Context& gpu, const cpu::HeadNormBackward<T>& a);

}  // namespace trireme::cuda
