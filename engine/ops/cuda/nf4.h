// Kernels of engine/ops/nf4.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/nf4.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void quantize_nf4(Context& gpu, const cpu::Nf4Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_nf4(Context& gpu, const cpu::Nf4Decode<T>& a,
                                      const cpu::Nf4Tables& tables);

}  // namespace trireme::cuda
