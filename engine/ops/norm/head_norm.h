// RMSNorm (Zhang & Sennrich 2019) of each head, for queries and keys of models that bound attention
// logits this way (QK-norm: Henry et al. 2020, "Query-Key Normalization"; Dehghani et al. 2023):
//
//   y[t, h] = x[t, h] * rstd[t, h] * (u + w),  rstd[t, h] = 1 / sqrt(mean(x[t, h]^2) + eps)
// where u (`unit`) is 0, or 1 for zero-centered gamma (engine/ops/norm/norm.h).
//
//   x, y, dx, dy  (T, H, D)  one float dtype, unit stride in D, any stride in T and H (slices of
//                            packed QKV)
//   w             (D)        that dtype; the same for all heads
//   rstd          (T, H)     float32 (float64 for float64)
//   dw            (D)        float32 (float64 for float64)
//
// y may alias x if no backward follows; dx may alias dy. dw is added to if `accumulate`, else
// overwritten; it is summed over fixed blocks of rows (engine/ops/rows/row_blocks.h), so it does
// not depend on the number of threads. A rank with some of the heads computes its part of dw, which
// the caller all-reduces.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void head_norm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const ConstTensor& x,
                       const ConstTensor& w, double eps, double unit = 0);

// With n = x rstd and g = dy (u + w): dx = rstd (g - n mean(g n)), dw = sum over t, h of dy n.
void head_norm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const ConstTensor& dy,
                        const ConstTensor& x, const ConstTensor& w, const ConstTensor& rstd,
                        bool accumulate, double unit = 0);

}  // namespace trireme
