// Pointwise functions of the MLP. x, y and their gradients have one float dtype; arithmetic is
// float32 (float64 for float64). Row-major (T, F), contiguous unless noted.
#pragma once

#include "engine/ops/context.h"
#include "engine/ops/rows/activation_function.h"

namespace trireme {

// y = f(x), any shape, the same for all operands. y may alias x if no backward follows. dx may
// alias dy or x.
void activation_forward(Ctx& ctx, ActivationFunction f, const Tensor& y, const ConstTensor& x);
void activation_backward(Ctx& ctx, ActivationFunction f, const Tensor& dx, const ConstTensor& dy,
                         const ConstTensor& x);

// Gated linear unit (Shazeer 2020; SwiGLU with kSilu, GeGLU with kGelu): y = f(gate) * up.
// gate_up is (T, 2F): the gate in columns [0, F), the up projection in [F, 2F). y is (T, F).
void gated_forward(Ctx& ctx, ActivationFunction f, const Tensor& y, const ConstTensor& gate_up);
// d_gate_up (T, 2F) is overwritten; it may alias gate_up.
void gated_backward(Ctx& ctx, ActivationFunction f, const Tensor& d_gate_up, const ConstTensor& dy,
                    const ConstTensor& gate_up);

// y (T, N) += bias (N), in place, one dtype.
void add_bias(Ctx& ctx, const Tensor& y, const ConstTensor& bias);

// db (N) = the column sums of dy (T, N), or += if `accumulate`. db is float32 (float64 for
// float64). Summed over fixed blocks of rows (engine/ops/rows/row_blocks.h): the result does not
// depend on the number of threads.
void bias_backward(Ctx& ctx, const Tensor& db, const ConstTensor& dy, bool accumulate);

}  // namespace trireme
