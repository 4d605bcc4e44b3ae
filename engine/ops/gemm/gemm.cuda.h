// Matrix products on a GPU (engine/ops/gemm/gemm.h): by cuBLASLt, and for few rows by our own
// kernel (engine/ops/gemm/skinny_gemm.cuda.h).
//
// Products run on the main stream and use its workspace.
//   16-bit operands   float32 sums
//   float32           without TF32
//   float64           in float64
//   fp8 codes         float32 sums, from compute capability 8.9 on; A as stored, B transposed,
//                     everything aligned to 16 bytes. With scales of groups, InputError if cuBLASLt
//                     is older than 12.9
// A product of 16-bit operands by cuBLASLt is split along N and along K if that dimension exceeds
// 1024 and is not a multiple of 8: into up to four products. K is not split if no operand is
// contiguous along it (A transposed, B as stored). If K is split, two products are added in C,
// which is rounded once more.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/gemm/gemm_algorithms.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme::cuda {

// m, n and k are positive.
TRIREME_CUDA_DECL void gemm(Context& gpu, const GemmProblem& problem, const GemmPointers& p);

// Computes an empty sum (k = 0): sets every row of C to the bias, or to zeros without one.
TRIREME_CUDA_DECL void gemm_without_terms(Context& gpu, const GemmProblem& problem,
                                          const GemmPointers& p);

// Number of cuBLASLt plans made so far: one per shape, not one per call (BlasLt::plans_made()).
TRIREME_CUDA_DECL int64_t blas_plans(const Context& gpu);

}  // namespace trireme::cuda
