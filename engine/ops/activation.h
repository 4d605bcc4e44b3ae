// Pointwise functions of the MLP. x, y and their gradients have one float dtype; arithmetic is
// float32 (float64 for float64). Row-major (T, F), contiguous unless noted.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// GELU, tanh form (Hendrycks & Gimpel 2016): y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// y may alias x if no backward follows. dx may alias dy or x.
void gelu_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x);
void gelu_backward(Ctx& ctx, const Tensor& dx, const ConstTensor& dy, const ConstTensor& x);

// SwiGLU (Shazeer 2020): y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
// gate_up is (T, 2F): the gate in columns [0, F), the up projection in [F, 2F). y is (T, F).
void silu_gated_forward(Ctx& ctx, const Tensor& y, const ConstTensor& gate_up);
// d_gate_up (T, 2F) overwrites; may alias gate_up.
void silu_gated_backward(Ctx& ctx, const Tensor& d_gate_up, const ConstTensor& dy,
                         const ConstTensor& gate_up);

// GeGLU (Shazeer 2020) with the tanh form of GELU: y = gelu(gate) * up; shapes as above.
void gelu_gated_forward(Ctx& ctx, const Tensor& y, const ConstTensor& gate_up);
void gelu_gated_backward(Ctx& ctx, const Tensor& d_gate_up, const ConstTensor& dy,
                         const ConstTensor& gate_up);

// y (T, N) += bias (N), in place, one dtype.
void add_bias(Ctx& ctx, const Tensor& y, const ConstTensor& bias);

// db (N) [+]= the column sums of dy (T, N), in float32 (float64 for float64). Sums are taken over
// fixed blocks of rows, independent of the number of threads.
void bias_backward(Ctx& ctx, const Tensor& db, const ConstTensor& dy, bool accumulate);

}  // namespace trireme
