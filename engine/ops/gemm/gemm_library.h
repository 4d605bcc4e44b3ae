// Matrix products of the CPU's library, and weights in its layout.
#pragma once

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme {

// True if the library has bfloat16 products, and this processor the instructions for them, under
// the limit set when the first engine was created. Whether a product uses them: gemm_choice.h.
bool library_has_bf16(const GemmEngine& engine);

// Whether its bfloat16 products use AMX.
bool library_has_amx(const GemmEngine& engine);

// float32 or bfloat16 operands. Allocates its scratch from ctx; in a planning run it does only
// that.
void library_gemm(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p);

// The same for a weight (N, K) in the library's layout; problem.in is packed_dtype(w).
PackedWeight library_pack(Ctx& ctx, const ConstTensor& w);
DType packed_dtype(const PackedWeight& w);
void library_gemm_packed(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p,
                         const PackedWeight& w);

// A contiguous copy, for types that the library does not multiply, and on a GPU.
PackedWeight keep_plain(const Ctx& ctx, const ConstTensor& w);
bool is_plain(const PackedWeight& w);
ConstTensor plain_weight(const PackedWeight& w);

}  // namespace trireme
