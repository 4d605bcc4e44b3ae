// One matrix product with its checks done: what gemm() hands to the code that computes it.
//   C (m, n) = alpha * op(A) op(B) [+ C] [+ bias]; ld* are row strides of the stored matrices.
#pragma once

#include "engine/core/float8.h"
#include "engine/ops/gemm.h"

namespace trireme {

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32, out = DType::kF32;
  // uint8 operands are codes of these (engine/ops/float8_gemm.h); only a GPU's library multiplies
  // them.
  Float8Format a_format = {}, b_format = {};
  Float8Scaling a_scaling = {}, b_scaling = {};
  bool accumulate = false;
  bool has_bias = false;
  bool varying_rows = false;
  float alpha = 1.0f;
};

struct GemmPointers {
  void* c = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  const float *a_inverse = nullptr, *b_inverse = nullptr;  // of codes: what they are multiplied by
};

// True when the library has bfloat16 products, and this processor the instructions for them, under
// the limit set when the first engine was made. Whether a product uses them: gemm_choice.h.
bool library_has_bf16(const GemmEngine& engine);

// float32 or bfloat16 operands. Takes its scratch from ctx; does nothing else in a planning run.
void library_gemm(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p);

// The same for a weight (N, K) in the library's layout; problem.in is packed_dtype(w).
PackedWeight library_pack(Ctx& ctx, const ConstTensor& w);
DType packed_dtype(const PackedWeight& w);
void library_gemm_packed(Ctx& ctx, const GemmProblem& problem, const GemmPointers& p,
                         const PackedWeight& w);

// A contiguous copy, for the types the library does not multiply, and on a GPU.
PackedWeight keep_plain(const Ctx& ctx, const ConstTensor& w);
bool is_plain(const PackedWeight& w);
ConstTensor plain_weight(const PackedWeight& w);

}  // namespace trireme
