// Kernels of engine/ops/float8.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/float8.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void amax(Context& gpu, float* out, const T* x, int64_t n, bool accumulate);
TRIREME_CUDA_DECL void update_float8_scales(Context& gpu, const cpu::Float8Scales& a);
template <class T>
TRIREME_CUDA_DECL void quantize_float8(Context& gpu, const cpu::QuantizeFloat8<T>& a);
template <class T>
TRIREME_CUDA_DECL void quantize_float8_transposed(Context& gpu, const cpu::QuantizeFloat8<T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_float8(Context& gpu, const cpu::DequantizeFloat8<T>& a);

}  // namespace trireme::cuda
