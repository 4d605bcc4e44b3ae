// Products of matrices in 8-bit floats (engine/ops/quantized/float8.h), with float32 sums; products
// that the tensor cores of Hopper and Ada add in one step keep about 13 bits.
//
//   C [+]= A B^T,   A (M, K) and B (N, K) decoded by codes and inverse; C (M, N)
// C is bfloat16, float32 or float64, contiguous, and overlaps neither. A linear layer y = x w^T
// uses the weight as stored; each of its other two products needs one operand quantized transposed.
//
// On a GPU cuBLASLt multiplies the codes:
//   one scale for each operand (kTensor, kTensor)         compute capability 8.9 and higher (Ada,
//                                                         Hopper)
//   scales of groups, each kRow or one of them kBlock     9.0 (Hopper) only, with cuBLASLt 12.9
//                                                         and later
// It requires K and N to be multiples of 16, and also addresses, and does not multiply E5M2 by
// E5M2; rows with scales of groups must be a multiple of 4. The CPU decodes both operands to
// float32 and has the same requirements. For a float64 C both devices decode to float64: the effect
// of rounding to 8 bits is then separate from the order of sums.
#pragma once

#include "engine/ops/quantized/float8.h"

namespace trireme {

struct Float8Matrix {
  ConstTensor codes;
  ConstTensor inverse;
  Float8Format format = Float8Format::kE4M3;
  Float8Scaling scaling = Float8Scaling::kTensor;
};

// InputError if the sizes, the GPU or the library do not support the product. Equal calls give
// equal bits.
void float8_gemm(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                 bool accumulate);

}  // namespace trireme
