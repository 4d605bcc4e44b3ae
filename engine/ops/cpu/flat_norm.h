// Kernels of engine/ops/optimizer_step.h: sums and searches over flat ranges.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

inline constexpr int64_t kSquaresBlock = 1 << 15;  // elements of one partial sum

// partial[b] = sum of x^2 over block b
TRIREME_CPU_KERNEL(squares, (double* partial, const T* x, int64_t n, int threads))
// *first = smallest index whose element is not finite, if that is less than *first
TRIREME_CPU_KERNEL(find_non_finite, (int64_t * first, const T* x, int64_t n, int threads))

}  // namespace trireme::cpu
