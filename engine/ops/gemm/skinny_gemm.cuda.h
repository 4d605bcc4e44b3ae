// Matrix products with few rows of A, bound by reading B: the products of decoding.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme::cuda {

// Rows of one tensor-core tile. Measured on an H200: one tile reads B at 70 % of the memory
// bandwidth, two tiles (16 rows) at 58 %, and cuBLASLt, with 32 rows, at 67 %.
inline constexpr int64_t kMaxSkinnyRows = 8;

// True if skinny_gemm() supports the product: A as stored, of at most kMaxSkinnyRows rows, B
// transposed, both of 16-bit floats; rows of both are 16-byte aligned and a multiple of 16 bytes.
bool is_skinny(const GemmProblem& g, const GemmPointers& p);

// C = alpha * A B^T [+ C] [+ bias], by tensor cores with float32 sums. K is divided among the warps
// of a thread block, whose sums are added in order: a row of C has the same bits for any other
// rows.
TRIREME_CUDA_DECL void skinny_gemm(Context& gpu, const GemmProblem& g, const GemmPointers& p);

}  // namespace trireme::cuda
