// RMSNorm (Zhang & Sennrich 2019) of rows whose columns are split over tensor-parallel ranks:
// queries and keys normalized over all heads together (OLMo 2, Walsh et al. 2025). The caller
// all-reduces s and d, the sums over a rank's columns, before the op that reads them:
//
//   square_sums            s[t] = sum over this rank's c of x[t, c]^2
//   divided_norm_forward   y[t, c] = x[t, c] rstd[t] w[c],  rstd[t] = 1 / sqrt(s[t] / N + eps)
//   divided_norm_backward_weight
//                          d[t] = sum over this rank's c of dy[t, c] w[c] n[t, c],  n = x rstd
//                          dw[c] = sum over t of dy[t, c] n[t, c]
//   divided_norm_backward_input
//                          dx[t, c] = rstd[t] (dy[t, c] w[c] - n[t, c] d[t] / N)
//
//   x, y, dy, dx  (T, C)  one float dtype, unit stride in C, any stride in T (slices of packed QKV)
//   w             (C)     that dtype
//   s, rstd, d    (T)     float32 (float64 for float64); s is `sums`, d is `dots` below
//   dw            (C)     float32 (float64 for float64)
//   N             (width) columns of a row on all ranks together
//
// y may alias x if no backward follows; dx may alias dy. dw is added to if `accumulate`, else
// overwritten; it is summed over fixed blocks of rows (engine/ops/rows/row_blocks.h), so it does
// not depend on the number of threads.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void square_sums(Ctx& ctx, const Tensor& sums, const ConstTensor& x);
void divided_norm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const ConstTensor& x,
                          const ConstTensor& w, const ConstTensor& sums, int64_t width, double eps);
void divided_norm_backward_weight(Ctx& ctx, const Tensor& dots, const Tensor& dw,
                                  const ConstTensor& dy, const ConstTensor& x, const ConstTensor& w,
                                  const ConstTensor& rstd, bool accumulate);
void divided_norm_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy,
                                 const ConstTensor& x, const ConstTensor& w,
                                 const ConstTensor& rstd, const ConstTensor& dots, int64_t width);

}  // namespace trireme
