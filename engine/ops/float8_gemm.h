// Products of matrices in 8-bit floats (engine/ops/float8.h), with float32 sums.
//
//   C [+]= A B^T,   A (M, K) and B (N, K) the numbers that codes and inverse stand for; C (M, N)
// C is bfloat16 or float32, contiguous, and overlaps neither. A linear layer is y = x w^T as it is
// stored; of its other two products one operand has to be quantized transposed.
//
// With one scale for each operand the library multiplies codes, from compute capability 8.9 on (Ada,
// Hopper), and applies both factors to the sum. Where an operand has scales of groups, both are read
// into bfloat16 first (float32 on the CPU), from compute capability 8.0 on.
// The library asks for K and N that are multiples of 16, addresses too, and takes no two E5M2.
#pragma once

#include "engine/ops/float8.h"

namespace trireme {

struct Float8Matrix {
  ConstTensor codes;
  ConstTensor inverse;
  Float8Format format = Float8Format::kE4M3;
  Float8Scaling scaling = Float8Scaling::kTensor;
};

// InputError where sizes or the GPU do not allow the product. The same call gives the same bits.
void float8_gemm(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                 bool accumulate);

}  // namespace trireme
