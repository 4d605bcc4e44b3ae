// DoRA (Liu et al. 2024): linear layer with a low-rank adapter and a learned magnitude m for each
// weight row (after Salimans & Kingma 2016, "Weight Normalization"). With v = w + s b a,
//
//   y = g (v z),   g[j] = m[j] / sqrt(squares[j]),   squares[j] = sum over i of v[j, i]^2
//
// where z (T, I) is the layer's input and the norm of v is constant in the backward pass (DoRA,
// section 4.3). If squares[j] = 0, then g[j] = 1 and the gradient of m[j] is 0.
//
//   w        (O, I)   one float dtype
//   a        (r, I)   b  (O, r)  that dtype
//   m        (O)      that dtype
//   squares  (O)      float32 (float64 for float64)
//   dm       (O)      float32 (float64 for float64)
//   x, y, u, dy  (T, O)  that dtype, unit stride in O, any stride in T (columns of the output of
//                        several fused weights)
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// squares = row sums of (w + s b a)^2; contiguous operands. w + s b a is neither rounded nor
// stored. A rank with some of the input columns computes its part of each sum; the caller
// all-reduces them.
void adapted_row_squares(Ctx& ctx, const Tensor& squares, const ConstTensor& w,
                         const ConstTensor& a, const ConstTensor& b, double s);

// y[t, j] = (g[j] + shift) x[t, j], or += if `accumulate`. y may alias x. g is 1 if m and squares
// are absent.
void scale_outputs(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& m,
                   const ConstTensor& squares, double shift, bool accumulate);

// dm[j] = sum over t of dy[t, j] u[t, j] / sqrt(squares[j]), or += if `accumulate`, where u = v z.
// Summed over fixed blocks of rows (engine/ops/rows/row_blocks.h), so it does not depend on the
// number of threads.
void magnitude_backward(Ctx& ctx, const Tensor& dm, const ConstTensor& dy, const ConstTensor& u,
                        const ConstTensor& squares, bool accumulate);

}  // namespace trireme
