// GPU kernels of engine/ops/moe/expert_rows.h, with the arguments of the CPU kernels.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/expert_rows.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void gather_rows(Context& gpu, const cpu::GatherRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void combine_rows(Context& gpu, const cpu::CombineRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void combine_rows_backward(Context& gpu, const cpu::CombineRowsBackward<T>& a);
template <class T>
TRIREME_CUDA_DECL void scale_rows(Context& gpu, const cpu::ScaleRows<T>& a);
template <class T>
TRIREME_CUDA_DECL void dot_rows(Context& gpu, const cpu::DotRows<T>& a);

}  // namespace trireme::cuda
