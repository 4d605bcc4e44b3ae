// Functions of float and double that kernels share, each in the type of its operand. For CUDA
// sources only.
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {

// Initial value of a running maximum. Not -infinity: for a logit of -infinity, exp(logit - maximum)
// must be 0, not NaN.
template <class F>
inline constexpr F kLowest = std::is_same_v<F, double> ? F(-DBL_MAX) : F(-FLT_MAX);

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }
__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }

}  // namespace trireme::cuda
