// State that training steps carry from one to the next, and the decision of one step. The same
// functions run on CPU and GPU, since the decision is made on the device that has the gradients.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/ops/optimizer/optimizer_scalars.h"
#include "optim/config.h"

namespace trireme {

// Stored as kStepStateBytes of uint8 in memory of the compute device; saved in checkpoints.
struct StepState {
  double loss_scale = 1.0;
  int64_t updates = 0;  // optimizer updates made
  int64_t skipped = 0;  // total of skipped steps
  int64_t consecutive_skips = 0;
  int64_t good_since_growth = 0;  // dynamic scale: finite steps since a growth or non-finite step
  int64_t hysteresis_left = 2;    // dynamic scale: non-finite steps until it halves
  double grad_norm = 0.0;         // of the last step, without loss scale, before clipping
};
inline constexpr int64_t kStepStateBytes = sizeof(StepState);

struct StepDecision {
  double clip = 1.0;  // maximum of the global gradient norm; 0: no clipping
  double learning_rate = 0.0;
  bool dynamic_scale = false;
  LossScaleConfig loss_scale;
};

// Adapts the dynamic loss scale after a step, as LossScaleConfig (optim/config.h) describes; the
// maximum is 2^32. finite: the step was not skipped.
TRIREME_HOST_DEVICE inline void adapt_loss_scale(StepState& state, const LossScaleConfig& config,
                                                 bool finite) {
  constexpr double kLargestScale = 0x1p32;
  if (finite) {
    if (++state.good_since_growth < config.window) return;
    state.loss_scale = std::min(kLargestScale, state.loss_scale * 2.0);
    state.hysteresis_left = config.hysteresis;
  } else {
    if (--state.hysteresis_left > 0) {
      state.good_since_growth = 0;
      return;
    }
    state.loss_scale = std::max(config.min_scale, state.loss_scale / 2.0);
    state.hysteresis_left = 1;  // from here each overflow halves the scale, until it grows again
  }
  state.good_since_growth = 0;
}

// gradient_scale() (optim/step_control.h) on host or device values.
TRIREME_HOST_DEVICE inline void scale_gradient(double* scale, const StepState& state,
                                               int64_t valid_tokens) {
  scale[0] = state.loss_scale / static_cast<double>(valid_tokens > 1 ? valid_tokens : 1);
  scale[1] = state.loss_scale;
}

// decide_step() (optim/step_control.h) on host or device values.
TRIREME_HOST_DEVICE inline StepScalars decide(StepState& state, double sum_of_squares,
                                              double loss_sum, const StepDecision& decision) {
  constexpr double kNormFloor = 1e-6;  // as in PyTorch's and Megatron's clipping
  const double norm = std::sqrt(sum_of_squares) / state.loss_scale;
  const bool finite = norm - norm == 0 && loss_sum - loss_sum == 0;
  StepScalars out;
  const double clip_factor =
      decision.clip > 0 ? std::min(1.0, decision.clip / (norm + kNormFloor)) : 1.0;
  out.grad_multiplier = finite ? clip_factor / state.loss_scale : 0.0;
  out.learning_rate = decision.learning_rate;
  out.skip = finite ? 0 : 1;
  state.grad_norm = norm;
  if (finite) {
    ++state.updates;
    state.consecutive_skips = 0;
  } else {
    ++state.skipped;
    ++state.consecutive_skips;
  }
  out.count = state.updates > 1 ? state.updates : 1;
  if (decision.dynamic_scale) adapt_loss_scale(state, decision.loss_scale, finite);
  return out;
}

}  // namespace trireme
