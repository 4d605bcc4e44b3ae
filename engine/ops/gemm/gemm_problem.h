// Checked description of one matrix product, passed by gemm() to the code that computes it.
//   C (m, n) = alpha * op(A) op(B) [+ C] [+ bias]
// ld* are row strides of the stored matrices, in elements.
#pragma once

#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/core/float8.h"

namespace trireme {

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32, out = DType::kF32;  // of A and B; of C and the bias
  // Formats of uint8 operands, which are fp8 codes (engine/ops/quantized/float8_gemm.h); only a
  // GPU's library multiplies them.
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
  const float *a_inverse = nullptr, *b_inverse = nullptr;  // fp8: value = code * inverse
};

}  // namespace trireme
