// Soft cap of logits (Gemma Team 2024, "Gemma 2"): y = c tanh(x / c), which is nearly x where |x|
// is small compared to c, and never beyond c.
//
//   x, y   any shape, contiguous, one float dtype; arithmetic is float32 (float64 for float64)
//   d      shape of y, any float dtype whose sum dtype (sum_dtype()) is that of y
//   c > 0
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y may alias x.
void soft_cap_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x, double cap);
// d *= 1 - (y / c)^2: the gradient of y becomes that of x.
void soft_cap_backward(Ctx& ctx, const Tensor& d, const ConstTensor& y, double cap);

}  // namespace trireme
