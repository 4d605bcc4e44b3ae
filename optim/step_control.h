// What a step decides from the loss and the gradient norm: clip, skip, loss scale, update count.
//
// The decision reads and writes device views only; the host reads the outcome after the step for its
// records. A step whose loss or gradient norm is not finite changes nothing and is counted.
#pragma once

#include "engine/ops/optimizer_step.h"
#include "optim/config.h"

namespace trireme {

// Lives in one device view (kStepStateBytes uint8); saved in checkpoints.
struct StepState {
  double loss_scale = 1.0;
  int64_t updates = 0;  // optimizer updates made
  int64_t skipped = 0;  // steps skipped in all
  int64_t consecutive_skips = 0;
  int64_t good_since_growth = 0;  // dynamic loss scale: finite steps since it last changed
  int64_t hysteresis_left = 2;    // overflows tolerated before the scale halves
  double grad_norm = 0.0;         // of the last step, unscaled, before clipping
};
inline constexpr int64_t kStepStateBytes = sizeof(StepState);

StepState initial_step_state(DType dtype, const LossScaleConfig& config);

struct StepDecision {
  double clip = 1.0;  // global-norm limit; 0: none
  double learning_rate = 0.0;
  bool dynamic_scale = false;
  LossScaleConfig loss_scale;
};

// sum_of_squares (1) float64: over all gradients, still multiplied by the loss scale.
// loss_sum (1) float64: only whether it is finite matters.
// Writes `scalars` (a StepScalars) for the optimizer kernels and updates `state` (a StepState):
//   norm = sqrt(sum) / loss_scale;  multiplier = min(1, clip / (norm + 1e-6)) / loss_scale
// Dynamic scale: a non-finite step uses up one of `hysteresis` tolerated overflows, then halves the
// scale (not below min_scale); `window` finite steps in a row double it and restore the hysteresis.
void decide_step(const Tensor& scalars, const Tensor& state, const ConstTensor& sum_of_squares,
                 const ConstTensor& loss_sum, const StepDecision& decision);

}  // namespace trireme
