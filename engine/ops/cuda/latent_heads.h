// Kernels of engine/ops/latent_heads.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/latent_heads.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void latent_heads_forward(Context& gpu, const cpu::LatentHeadsForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void latent_heads_backward(Context& gpu, const cpu::LatentHeadsBackward<T>& a);

}  // namespace trireme::cuda
