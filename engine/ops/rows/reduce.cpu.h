// Kernels of engine/ops/rows/reduce.h. n: elements of a range.
#pragma once

#include <cstdint>

#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// in: `count` >= 1 ranges of T; op: the value of a ReduceOp.
TRIREME_CPU_KERNEL(reduce_ranges,
                   (T * out, const void* const* in, int64_t count, int64_t n, int op))
TRIREME_CPU_KERNEL(accumulate_as_float, (float* acc, const T* x, int64_t n))
TRIREME_CPU_KERNEL(round_from_float, (T * y, const float* acc, int64_t n))

}  // namespace trireme::cpu
