// Products of matrices in 8-bit floats (engine/ops/float8.h), with float32 sums; of the products
// that the tensor cores of Hopper and Ada add in one step they keep some 13 bits.
//
//   C [+]= A B^T,   A (M, K) and B (N, K) the numbers that codes and inverse stand for; C (M, N)
// C is bfloat16, float32 or float64, contiguous, and overlaps neither. A linear layer is y = x w^T
// as it is stored; of its other two products one operand has to be quantized transposed.
//
// On a GPU cuBLASLt multiplies the codes:
//   one scale for each operand (kTensor, kTensor)         compute capability 8.9 and higher (Ada, Hopper)
//   scales of groups, each kRow or one of them kBlock     9.0 (Hopper) only, with cuBLASLt 12.9 and later
// It asks for K and N that are multiples of 16, addresses too, and takes no two E5M2; rows that
// have scales of groups come in multiples of 4. The CPU reads both operands into float32 and asks
// the same. Where C is float64 both devices read them into float64: what rounding to 8 bits does is
// then apart from the order of sums.
#pragma once

#include "engine/ops/float8.h"

namespace trireme {

struct Float8Matrix {
  ConstTensor codes;
  ConstTensor inverse;
  Float8Format format = Float8Format::kE4M3;
  Float8Scaling scaling = Float8Scaling::kTensor;
};

// InputError where sizes, the GPU or the library do not allow the product. The same call gives the
// same bits.
void float8_gemm(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                 bool accumulate);

}  // namespace trireme
