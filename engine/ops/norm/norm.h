// RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016), each with an optional residual
// add fused in front. Statistics and sums are float32 (float64 for float64 input).
//
//   h    = x + residual            (h = x if residual is absent)
//   rms:   y = h * rstd * (u + w),  rstd = 1 / sqrt(mean(h^2) + eps); u (`unit`) is 0, or 1 for
//                                   zero-centered gamma: w is stored as gamma - 1 (Gemma Team 2024)
//   layer: y = (h - mean) * rstd * w + b,  rstd = 1 / sqrt(mean((h - mean)^2) + eps)
//
//   x, residual, h, y, dy, dh, dx   (T, C)  one float dtype
//   w, b                            (C)     that dtype
//   rstd, mean                      (T)     float32 (float64 for float64)
//   dw, db                          (C)     float32 (float64 for float64)
//
// h is written only if residual is present; otherwise pass an absent tensor. It may alias x or
// residual, and y may alias x if no backward follows. The norm reads h as rounded to its dtype, so
// that forward and backward see the same values. dw and db are added to if `accumulate`, else
// overwritten; they are summed over fixed blocks of rows (engine/ops/rows/row_blocks.h), so they do
// not depend on the number of threads.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void rmsnorm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const Tensor& h,
                     const ConstTensor& x, const ConstTensor& residual, const ConstTensor& w,
                     double eps, double unit = 0);
// dx = d(norm)/dh^T dy + dh_in: the gradient of both x and residual. `h` is the input of the norm
// (x if there was no residual); dh_in (optional) is the gradient of h through the residual stream.
// dx may alias dy or dh_in. The same holds for layernorm_backward().
void rmsnorm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const ConstTensor& dy,
                      const ConstTensor& dh_in, const ConstTensor& h, const ConstTensor& w,
                      const ConstTensor& rstd, bool accumulate, double unit = 0);

void layernorm_forward(Ctx& ctx, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                       const Tensor& h, const ConstTensor& x, const ConstTensor& residual,
                       const ConstTensor& w, const ConstTensor& b, double eps);
void layernorm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const Tensor& db,
                        const ConstTensor& dy, const ConstTensor& dh_in, const ConstTensor& h,
                        const ConstTensor& w, const ConstTensor& mean, const ConstTensor& rstd,
                        bool accumulate);

}  // namespace trireme
