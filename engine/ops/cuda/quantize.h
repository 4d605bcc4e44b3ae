// Kernels of engine/ops/quantize.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/quantize.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void quantize_int8(Context& gpu, const cpu::Int8Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_int8(Context& gpu, const cpu::Int8Weight<T>& a);
template <class T>
TRIREME_CUDA_DECL void quantize_int4(Context& gpu, const cpu::Int4Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_int4(Context& gpu, const cpu::Int4Weight<T>& a);

}  // namespace trireme::cuda
