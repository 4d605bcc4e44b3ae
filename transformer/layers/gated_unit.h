// Gated linear unit of an MLP or of experts: SwiGLU, GeGLU, or clamped SwiGLU (gpt-oss).
#pragma once

#include "engine/ops/rows/activation.h"
#include "engine/ops/rows/clamped_gate.h"
#include "transformer/config/model_config.h"

namespace trireme {

class GatedUnit {
 public:
  explicit GatedUnit(const ModelConfig& config)
      : function_(config.gelu_gate ? ActivationFunction::kGelu : ActivationFunction::kSilu),
        clamped_(config.clamped_gate) {}

  // y (T, F) of gate_up (T, 2F): the gate in columns [0, F), the up projection in [F, 2F).
  void forward(Ctx& ctx, const Tensor& y, const ConstTensor& gate_up) const {
    if (clamped_.has_value()) return clamped_gate_forward(ctx, *clamped_, y, gate_up);
    gated_forward(ctx, function_, y, gate_up);
  }
  // Overwrites d_gate_up (T, 2F), which may alias gate_up. dy (T, F).
  void backward(Ctx& ctx, const Tensor& d_gate_up, const ConstTensor& dy,
                const ConstTensor& gate_up) const {
    if (clamped_.has_value()) return clamped_gate_backward(ctx, *clamped_, d_gate_up, dy, gate_up);
    gated_backward(ctx, function_, d_gate_up, dy, gate_up);
  }

 private:
  ActivationFunction function_;
  std::optional<ClampedGate> clamped_;
};

}  // namespace trireme
