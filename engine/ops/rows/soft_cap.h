// Soft cap of logits (Gemma Team 2024, "Gemma 2"): y = c tanh(x / c), close to x for |x| much less
// than c, and bounded by |y| <= c.
//
//   x, y   any shape, contiguous, one float dtype; arithmetic is float32 (float64 for float64)
//   c      cap: finite, > 0
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y may alias x.
void soft_cap_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x, double cap);
// d *= 1 - (y / c)^2, in place: the gradient with respect to y becomes that with respect to x.
// d has y's shape and any float dtype; y is float32 (float64 for a float64 d).
void soft_cap_backward(Ctx& ctx, const Tensor& d, const ConstTensor& y, double cap);

}  // namespace trireme
