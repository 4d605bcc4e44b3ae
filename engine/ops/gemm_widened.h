// Products of 16-bit operands by float32 copies of them, for types that the library does not
// multiply, or multiplies slower than float32.
//
// The copies are made in pieces, of about 8 MiB and at least 64 rows or columns, so that they need
// little memory: where the sums have the most terms, of both operands along these, with float32
// sums in C; else of the larger operand and C, while the smaller operand is copied whole.
#pragma once

#include <functional>

#include "engine/ops/context.h"
#include "engine/ops/gemm_problem.h"

namespace trireme {

// Elements from one row to the next. A single row may carry any stride; products want one that a
// matrix could have.
int64_t row_stride(const ConstTensor& t);

// A float32 copy of a 16-bit matrix in scratch; empty in a planning run.
Activation widened(Ctx& ctx, const char* name, const ConstTensor& t);

// product(C, bias) with float32 C and bias, then narrowed into c: for an output that a product
// cannot write itself. Of float32 c: c itself.
void through_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& bias,
                     const std::function<void(const Tensor& c, const ConstTensor& bias)>& product);

// A float32 product of the parts that it is given.
using Float32Product =
    std::function<void(const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                       const ConstTensor& b, const ConstTensor& bias)>;

// op(A) and op(B) of bfloat16 or float16, as `g` describes them.
void gemm_in_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                     const ConstTensor& b, const ConstTensor& bias, const Float32Product& product);

}  // namespace trireme
