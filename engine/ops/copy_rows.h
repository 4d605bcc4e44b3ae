// Moves of rows: to other places, to other strides, to a shorter float type.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y[y_rows[i], :] = x[x_rows[i], :] for i < n; an absent list stands for 0, 1, ..., n - 1.
//   y (Ry, M), x (Rx, M)  one dtype, unit stride in the columns, any stride of rows; no overlap
//   y_rows, x_rows (n)    int32; y_rows names no row twice. Without either list n = Rx = Ry.
// Rows of y that are not named keep their values. A number that names no row throws Error; on a
// GPU, where nobody can look before, nothing is copied for it.
void copy_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& y_rows = {},
               const ConstTensor& x_rows = {});

// y = x, rounded to nearest even. x (R, M) contiguous in the sum dtype of y's; y (R, M) with unit
// stride in the columns and any stride of rows.
void round_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x);

// (T, heads, D) as (T, heads * D), where the heads of a token lie one behind the other.
ConstTensor heads_as_columns(const ConstTensor& t);
Tensor heads_as_columns(const Tensor& t);

}  // namespace trireme
