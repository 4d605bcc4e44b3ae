// Row copies: to other positions, other strides or a narrower float type.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y[y_rows[i], :] = x[x_rows[i], :] for i < n. An absent list means 0, 1, ..., n - 1.
//   y (Ry, M), x (Rx, M)  one dtype, unit stride in the columns, any stride of rows; no overlap
//   y_rows, x_rows (n)    int32; y_rows names no row twice
// Without y_rows n must be Ry, without x_rows it must be Rx.
// Rows of y that are not listed keep their values. An index out of range throws Error before
// anything is copied; on a GPU, whose memory the host does not read, that row is skipped.
void copy_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& y_rows = {},
               const ConstTensor& x_rows = {});

// y = x, rounded to nearest even.
//   x (R, M)  contiguous, float32 (float64 for a float64 y)
//   y (R, M)  any float dtype, unit stride in the columns, any stride of rows
void round_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x);

// View of t (T, heads, D) as (T, heads * D), with any stride of tokens. Throws Error unless the
// heads * D elements of a token are contiguous.
ConstTensor heads_as_columns(const ConstTensor& t);
Tensor heads_as_columns(const Tensor& t);

}  // namespace trireme
