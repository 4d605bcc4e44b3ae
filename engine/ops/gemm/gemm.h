// Matrix products. On the CPU our kernels compute float64 and few rows, and oneDNN the others in
// float32, or in bfloat16 if the processor makes that faster (gemm_choice.h). On a GPU cuBLASLt
// computes them, and our own kernel up to 8 rows of 16-bit floats (gemm.cuda.h); sums are float32
// (float64 for float64), without TF32.
//
//   gemm:  C = alpha * op(A) op(B) + beta * C [+ bias]
//   op(A) is (M, K), op(B) is (K, N), C is (M, N), bias is (N) of C's dtype.
// A, B and C are rank-2 views with unit stride in the last dimension; rows may have any stride that
// does not make them overlap. A and B have one dtype; C has the same dtype, or float32 for a 16-bit
// one. Accumulation is in float32 (float64 for float64). C must not overlap A or B. beta is 0 (C is
// overwritten, its old content is not read) or 1. With K = 0 the product is zero. Scratch comes
// from the context, its size depends on shapes only. Equal calls give equal bits, on a GPU unless
// Context::autotune. With AVX-512 the bits are the same for any number of threads; without it the
// library splits long sums among threads. With GemmEngine::batch_invariant and a weight (N, K) a
// row of C has the same bits for any other rows.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

enum class Transpose : bool { kNo = false, kYes = true };

struct GemmArgs {
  float alpha = 1.0f;
  bool accumulate = false;  // beta = 1
  ConstTensor bias = {};    // optional, not together with accumulate
  // M (K if A is transposed) comes from the data and differs in each call, such as the number of
  // tokens of an expert: cuBLASLt plans are prepared for ranges of it (blas_lt.cuda.h).
  bool varying_rows = false;
};

void gemm(Ctx& ctx, const Tensor& c, const ConstTensor& a, Transpose ta, const ConstTensor& b,
          Transpose tb, const GemmArgs& args = {});

// Constant weight (N, K) in the library's preferred layout, for repeated products with few rows. A
// type that the library does not multiply is widened to float32. For float64 and on a GPU it is a
// plain copy. Owns its memory; the source may be freed.
class PackedWeight {
 public:
  PackedWeight();
  ~PackedWeight();
  PackedWeight(PackedWeight&&) noexcept;
  PackedWeight& operator=(PackedWeight&&) noexcept;
  bool present() const { return impl_ != nullptr; }
  int64_t rows() const;     // N; Error unless present()
  int64_t columns() const;  // K; Error unless present()

  struct Impl;
  std::unique_ptr<Impl> impl_;
};
PackedWeight pack_weight(Ctx& ctx, const ConstTensor& w);

// The three products of a linear layer y = x w^T + bias, timed as TimeCategory::kGemm.
//   x (T, K)   w (N, K)   bias (N) or absent   y (T, N)
// linear_forward_packed() is an Error with GemmEngine::batch_invariant, except for plain copies.
void linear_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& w,
                    const ConstTensor& bias);
void linear_forward_packed(Ctx& ctx, const Tensor& y, const ConstTensor& x, const PackedWeight& w,
                           const ConstTensor& bias);
// dx = dy w, or dx += dy w
void linear_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy, const ConstTensor& w,
                           bool accumulate);
// dw = dy^T x, or dw += dy^T x; dw is (N, K), float32 or x's dtype
void linear_backward_weight(Ctx& ctx, const Tensor& dw, const ConstTensor& dy, const ConstTensor& x,
                            bool accumulate);

// oneDNN's engine, stream and primitive cache of one rank; created by Ctx.
class GemmEngine {
 public:
  GemmEngine();
  ~GemmEngine();
  struct Impl;
  std::unique_ptr<Impl> impl;
  // Products give a row the same bits for any number and content of the other rows, as all other
  // ops always do. CPU only, weights (N, K) as stored, or any float64 product; Error for others.
  // Cost: docs/guide/serving.md.
  bool batch_invariant = false;
};

std::string gemm_library_version();  // "oneDNN 2.6.3 (avx512_core_bf16)"

}  // namespace trireme
