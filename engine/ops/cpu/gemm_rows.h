// y = x w^T for any number of rows of x, every row with the bits it would have alone (batch invariance).
//
// y[i][j] is one sum in one order: lanes of kUnroll vectors run along k, are added up at the end, and nothing of it
// depends on the other rows, on the number of threads, or on which tile of rows and columns an element is in. A
// library's kernels do depend on the number of rows: it chooses among them, and how it divides k, by the shape.
#pragma once

#include "engine/ops/cpu/gemv.h"

namespace trireme::cpu {

// As gemv, with any a.m, and x (m, k) with row stride `x_stride` in the place of a.x. T is float or bf16.
TRIREME_CPU_KERNEL(gemm_rows, (const Gemv<T>& a, const float* x, int64_t x_stride, int threads))

}  // namespace trireme::cpu
