// y = x w^T for any number of rows of x, every row with the bits it would have alone (batch
// invariance).
//
// Tiles of rows of x and of the weight keep their sums in registers (gemm_tile.cpu.h); the weight
// is read from memory once.
//
// y[i][j] is one sum in a fixed order. With V floats in a register, the columns are added in steps
// of 2 V: lane l adds column l of the step, then column l + V (bfloat16, which is widened in pairs:
// columns 2 l and 2 l + 1). At the end the lanes are added as a tree. None of this depends on the
// other rows, on the number of threads, or on the tile of the element. A library's kernels do
// depend on the number of rows: the shape determines the kernel and how it splits k.
#pragma once

#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme::cpu {

// As gemv() of gemv.cpu.h, for any a.m; a.packed_x is scratch of m * packed_columns(k) float32
// numbers. T is float, bf16 or f16.
TRIREME_CPU_KERNEL(gemm_rows, (const Gemv<T>& a, int threads))

}  // namespace trireme::cpu
