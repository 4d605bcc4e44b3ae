// Products of matrices in 8-bit floats (engine/ops/quantized/float8.h), with float32 sums. The
// tensor cores of Hopper and Ada keep about 13 bits while they add the products of one instruction
// (docs/design/float8.md).
//
//   C = A B^T, or += if `accumulate`;   A (M, K) and B (N, K) as codes and inverse; C (M, N)
// C is bfloat16, float32 or float64, contiguous, and overlaps neither. A linear layer y = x w^T
// uses the weight as stored; each of its other two products needs one operand quantized transposed.
//
// On a GPU cuBLASLt multiplies the codes:
//   one scale for each operand (kTensor, kTensor)         compute capability 8.9 and higher (Ada,
//                                                         Hopper)
//   scales of groups (both kRowGroup, or one kRowGroup    9.0 (Hopper) only, with cuBLASLt 12.9
//   and one kBlock)                                       and later
// Requirements: K > 0 and N are multiples of 16. With scales of groups M is a multiple of 4. Codes,
// C and scales of groups are 16-byte aligned. A and B are not both E5M2. The CPU has the same
// requirements and decodes both operands to float32. For a float64 C both devices decode to
// float64, which separates the effect of rounding to 8 bits from that of the order of sums.
#pragma once

#include "engine/ops/quantized/float8.h"

namespace trireme {

struct Float8Matrix {
  ConstTensor codes;
  ConstTensor inverse;
  Float8Format format = Float8Format::kE4M3;
  Float8Scaling scaling = Float8Scaling::kTensor;
};

// Throws InputError if the sizes, the GPU or the library do not support the product, and Error if
// another requirement is not met. Equal calls give equal bits.
void float8_gemm(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                 bool accumulate);

}  // namespace trireme
