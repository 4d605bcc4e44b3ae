// Clamped gated linear unit (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card"): SwiGLU
// (Shazeer 2020) of clamped operands, which bounds their product.
//
//   y = g sigmoid(a g) (u + b),   g = min(gate, L),   u = max(-L, min(up, L))
//
//   gate_up, d_gate_up  (T, 2F)  the gate in columns [0, F), the up projection in [F, 2F)
//   y, dy               (T, F)
// One float dtype, contiguous; arithmetic is float32 (float64 for float64). The gradient of an
// operand is 0 where the clamp changes it, but not where it is exactly at the limit.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

struct ClampedGate {
  double limit = 7;      // L > 0
  double slope = 1.702;  // a: with it g sigmoid(a g) is nearly GELU (Hendrycks & Gimpel 2016)
  double up_offset = 1;  // b
  bool operator==(const ClampedGate&) const = default;
};

void clamped_gate_forward(Ctx& ctx, const ClampedGate& f, const Tensor& y,
                          const ConstTensor& gate_up);
// d_gate_up is overwritten; it may alias gate_up.
void clamped_gate_backward(Ctx& ctx, const ClampedGate& f, const Tensor& d_gate_up,
                           const ConstTensor& dy, const ConstTensor& gate_up);

}  // namespace trireme
