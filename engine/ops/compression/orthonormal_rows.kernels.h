// Kernels of engine/ops/compression/orthonormal_rows.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/core/device_memory.h"
#include "engine/core/host_device.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

TRIREME_CPU_KERNEL(orthonormal_rows, (T * y, int64_t rows, int64_t n))
TRIREME_CPU_KERNEL(copy_nonzero_rows, (T * y, const T* x, int64_t rows, int64_t n))

// Share of a row's squared norm below which nothing but rounding is left of it.
template <class T>
inline constexpr T kDependent = std::is_same_v<T, double> ? T(1e-24) : T(1e-10);

// Factor that brings the largest magnitude of a row to 1; 0 if that is no normal number.
template <class T>
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline T unit_factor(T largest) {
  constexpr T kSmallest = std::is_same_v<T, double> ? T(0x1p-1022) : T(0x1p-126);
  return largest >= kSmallest ? T(1) / largest : T(0);
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void orthonormal_rows(Context& gpu, T* y, int64_t rows, int64_t n);
template <class T>
TRIREME_CUDA_DECL void copy_nonzero_rows(Context& gpu, T* y, const T* x, int64_t rows, int64_t n);

}  // namespace trireme::cuda
