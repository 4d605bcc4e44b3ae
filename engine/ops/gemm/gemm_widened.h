// Products of 16-bit operands via float32 copies, for types that the library does not multiply, or
// multiplies slower than float32.
//
// The copies are made in pieces of about 8 MiB and at least 64 rows or columns, to limit scratch.
// If K is the largest dimension, both operands are split along it, with sums in a float32 C.
// Otherwise the larger operand and C are split, and the smaller operand is copied whole.
#pragma once

#include <functional>

#include "engine/ops/context.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme {

// Elements from one row to the next, as products require: of a tensor with one row, whose stride
// may be any number, the length of the row.
int64_t row_stride(const ConstTensor& t);

// float32 copy of a 16-bit matrix in scratch; not filled in a planning run.
Activation widened(Ctx& ctx, const char* name, const ConstTensor& t);

// Calls product(C, bias) with float32 C and bias, then narrows C into c: for an output type that a
// product cannot write. With g.accumulate, C initially has the values of c. If c is float32, passes
// c and bias themselves.
void through_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& bias,
                     const std::function<void(const Tensor& c, const ConstTensor& bias)>& product);

// Computes a float32 product of the given operands, which `g` describes.
using Float32Product =
    std::function<void(const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                       const ConstTensor& b, const ConstTensor& bias)>;

// Product of bfloat16 or float16 operands, op(A) and op(B) as in `g`, by calls of `product`.
void gemm_in_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                     const ConstTensor& b, const ConstTensor& bias, const Float32Product& product);

}  // namespace trireme
