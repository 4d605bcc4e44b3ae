// Decision of a step from the loss and the gradient norm: clip, skip, loss scale, update count.
//
// The decision reads and writes device views only; the host reads the result after the step for its
// records. A step whose loss or gradient norm is not finite changes nothing and is counted.
#pragma once

#include "engine/ops/optimizer/optimizer_step.h"
#include "optim/step_state.h"

namespace trireme {

StepState initial_step_state(DType dtype, const LossScaleConfig& config);

// sum_of_squares (1) float64: over all gradients, still multiplied by the loss scale.
// loss_sum (1) float64: only whether it is finite matters.
// Writes `scalars` (a StepScalars) for the optimizer kernels and updates `state` (a StepState):
//   norm = sqrt(sum) / loss_scale;  multiplier = min(1, clip / (norm + 1e-6)) / loss_scale
// Dynamic scale: a non-finite step uses up one of `hysteresis` tolerated overflows, then halves the
// scale (not below min_scale); `window` finite steps in a row double it and restore the hysteresis.
void decide_step(Ctx& ctx, const Tensor& scalars, const Tensor& state,
                 const ConstTensor& sum_of_squares, const ConstTensor& loss_sum,
                 const StepDecision& decision);

// scale (2) float64: the factor of the gradient of each of `valid_tokens` tokens,
//   loss_scale / max(1, valid_tokens)
// (a batch of only masked tokens has zero gradients, not infinite ones), and the loss scale itself.
void gradient_scale(Ctx& ctx, const Tensor& scale, const ConstTensor& state, int64_t valid_tokens);

}  // namespace trireme
