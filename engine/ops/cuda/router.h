// GPU kernels of engine/ops/moe/router.h, with the arguments of the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/router.h"

namespace trireme::cuda {

// T: float or double.
template <class T>
TRIREME_CUDA_DECL void router_forward(Context& gpu, const cpu::RouterForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void router_backward(Context& gpu, const cpu::RouterBackward<T>& a);

}  // namespace trireme::cuda
