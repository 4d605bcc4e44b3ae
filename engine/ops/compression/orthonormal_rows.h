// Orthonormal rows by Gram-Schmidt: a step of PowerSGD's power iteration (Vogels et al. 2019).
//
// y (R, N) float32 or float64, in place; for each row i in order, twice for accuracy,
//   y_i -= sum over j < i of (y_i . y_j) y_j, then y_i /= |y_i|
// Each row is divided by its largest magnitude first, so that its norm is a normal number; a row
// without a normal number becomes 0. So does a row of whose norm less than 1e-5 (1e-12 in float64)
// is left: it depends on the rows before it. Sums have the dtype of y, and on the CPU an order that
// depends on the instruction set only. Costs R^2 N multiply-adds, on a CPU in one thread, on a GPU
// in one thread block: for few rows.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void orthonormal_rows(Ctx& ctx, const Tensor& y);

// y_i = x_i for each row of x that is finite and has an element other than 0; other rows of y keep
// their values.
// y and x (R, N) float32 or float64, without overlap.
void copy_nonzero_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x);

}  // namespace trireme
