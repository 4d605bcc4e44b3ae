// Linear layers whose weight rows have learned magnitudes (Salimans & Kingma 2016, "Weight
// Normalization"; with low-rank adapters Liu et al. 2024, "DoRA"): with v = w + s b a,
//
//   y = g v x,   g[j] = m[j] / sqrt(squares[j]),   squares[j] = sum over i of v[j, i]^2
//
// where the norm of v is a constant in the backward pass (DoRA, section 4.3). A row of norm 0,
// squares[j] = 0, has g[j] = 1 and no gradient of m[j].
//
//   w        (O, I)   one float dtype
//   a        (r, I)   b  (O, r)  that dtype
//   m        (O)      that dtype
//   squares  (O)      float32 (float64 for float64)
//   dm       (O)      float32 (float64 for float64)
//   x, y, u, dy  (T, O)  that dtype, unit stride in O, any stride in T (outputs of one of several
//                        fused weights)
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// squares = row sums of (w + s b a)^2. The sum of w and s b a is neither rounded nor stored: no
// scratch. A rank with some of the inputs computes part of each sum. Contiguous operands.
void adapted_row_squares(Ctx& ctx, const Tensor& squares, const ConstTensor& w,
                         const ConstTensor& a, const ConstTensor& b, double s);

// y = (g + shift) x, or y += (g + shift) x. y may alias x. m and squares absent: g is 1.
void scale_outputs(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& m,
                   const ConstTensor& squares, double shift, bool accumulate);

// dm[j] [+]= sum over t of dy[t, j] u[t, j] / sqrt(squares[j]), where u = v x. Sums over fixed
// blocks of rows: independent of the number of threads.
void magnitude_backward(Ctx& ctx, const Tensor& dm, const ConstTensor& dy, const ConstTensor& u,
                        const ConstTensor& squares, bool accumulate);

}  // namespace trireme
