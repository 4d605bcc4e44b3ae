// Kernels of engine/ops/optimizer/optimizer_step.h: sums and searches over flat ranges.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme {
struct StepScalars;  // optimizer_scalars.h
}

namespace trireme::cpu {

inline constexpr int64_t kSquaresBlock = 1 << 15;  // elements of one partial sum

// partial[b] = sum of x^2 over block b: kSquaresBlock elements, the last block fewer
TRIREME_CPU_KERNEL(squares, (double* partial, const T* x, int64_t n, int threads))
// *first = min(*first, smallest index of a non-finite element); unchanged if all are finite
TRIREME_CPU_KERNEL(find_non_finite, (int64_t * first, const T* x, int64_t n, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// *out += sum of x^2. partial: scratch, one value for each cpu::kSquaresBlock elements.
template <class T>
TRIREME_CUDA_DECL void sum_of_squares(Context& gpu, double* out, double* partial, const T* x,
                                      int64_t n);
// *first = min(*first, begin + smallest index of a non-finite element). With scalars (not null)
// nothing is done unless they mark the step as skipped.
template <class T>
TRIREME_CUDA_DECL void find_non_finite(Context& gpu, int64_t* first, const T* x, int64_t n,
                                       int64_t begin, const StepScalars* scalars);

}  // namespace trireme::cuda
