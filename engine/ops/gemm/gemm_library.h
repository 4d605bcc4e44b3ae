// Matrix products of the CPU's library, and weights in its layout.
#pragma once

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme {

// True if the library has bfloat16 products, and this processor the instructions for them, within
// limit_instruction_set(). gemm_choice.h decides which products use them.
bool library_has_bf16(const GemmEngine& engine);

// True if the library's bfloat16 products use AMX.
bool library_has_amx(const GemmEngine& engine);

// Multiplies float32 or bfloat16 operands. Allocates its scratch from ctx; in a planning run does
// nothing else.
void library_gemm(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p);

// The same for a float32 or bfloat16 weight (N, K) in the library's layout. problem.in is
// packed_dtype(w), and p.b is not used.
PackedWeight library_pack(Ctx& ctx, const ConstTensor& w);
DType packed_dtype(const PackedWeight& w);
void library_gemm_packed(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p,
                         const PackedWeight& w);

// A contiguous copy, for float64 and on a GPU; linear_forward_packed() then calls gemm().
PackedWeight keep_plain(const Ctx& ctx, const ConstTensor& w);
bool is_plain(const PackedWeight& w);
ConstTensor plain_weight(const PackedWeight& w);

}  // namespace trireme
