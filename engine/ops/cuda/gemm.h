// Matrix products on a GPU (engine/ops/gemm.h), by cuBLASLt, and with few rows by our own kernel
// (engine/ops/cuda/skinny_gemm.h).
//
// The product runs on the main stream, whose workspace it uses. 16-bit operands are multiplied with
// float32 sums, float32 without TF32, float64 in float64. Codes of 8-bit floats with float32 sums,
// from compute capability 8.9 on; A as it is stored, B transposed, everything aligned to 16 bytes.
// With scales of groups, an InputError where cuBLASLt is older than 12.9. A large product of 16-bit
// operands whose columns or terms are no multiple of 8 is computed as up to four, of which the
// second rounds C once more.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/gemm_algorithms.h"
#include "engine/ops/gemm_problem.h"

namespace trireme::cuda {

// m, n and k are positive.
TRIREME_CUDA_DECL void gemm(Context& gpu, const GemmProblem& problem, const GemmPointers& p);

// The sum over nothing (k = 0): every row of C is the bias, or zeros without one.
TRIREME_CUDA_DECL void gemm_without_terms(Context& gpu, const GemmProblem& problem,
                                          const GemmPointers& p);

// Products prepared so far: one for each shape that cuBLASLt is given, not one for each call.
TRIREME_CUDA_DECL int64_t blas_plans(const Context& gpu);

// The device and the library that algorithms are chosen for here, with none yet.
TRIREME_CUDA_DECL GemmAlgorithms algorithms_of(const Context& gpu);
// From here on products take the algorithms of `algorithms`, and what it lacks is added to it. It
// must be of this device and library.
TRIREME_CUDA_DECL void keep_algorithms(Context& gpu, GemmAlgorithms algorithms);
// Those kept so far; null: none are.
TRIREME_CUDA_DECL const GemmAlgorithms* kept_algorithms(const Context& gpu);

}  // namespace trireme::cuda
