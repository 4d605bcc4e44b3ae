// Copies of rows: to other positions, to other strides, to a narrower float type.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y[y_rows[i], :] = x[x_rows[i], :] for i < n; an absent list means 0, 1, ..., n - 1.
//   y (Ry, M), x (Rx, M)  one dtype, unit stride in the columns, any stride of rows; no overlap
//   y_rows, x_rows (n)    int32; y_rows names no row twice. Without either list n = Rx = Ry.
// Rows of y that are not listed keep their values. An index out of range throws Error; on a GPU,
// whose memory the host does not read, nothing is copied for it.
void copy_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& y_rows = {},
               const ConstTensor& x_rows = {});

// y = x, rounded to nearest even. x (R, M) contiguous in the sum dtype of y's; y (R, M) with unit
// stride in the columns and any stride of rows.
void round_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x);

// (T, heads, D) as (T, heads * D), for heads of a token that are stored one after the other.
ConstTensor heads_as_columns(const ConstTensor& t);
Tensor heads_as_columns(const Tensor& t);

}  // namespace trireme
