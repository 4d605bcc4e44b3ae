// Decision of a training step from its loss and gradient norm: gradient clipping, skipping, loss
// scale, update count.
//
// The decision reads and writes memory of the compute device only; the host reads the result after
// the step. A step whose loss or gradient norm is not finite is skipped: it leaves weights and
// optimizer states unchanged and is counted.
#pragma once

#include "engine/ops/optimizer/optimizer_step.h"
#include "optim/step_state.h"

namespace trireme {

// State before the first step. dtype: of the weights; the loss scale is 1 unless it is float16.
StepState initial_step_state(DType dtype, const LossScaleConfig& config);

// sum_of_squares (1) float64: over all gradients, before division by the loss scale.
// loss_sum (1) float64: only checked to be finite.
// Writes `scalars` (a StepScalars) for the optimizer kernels and updates `state` (a StepState):
//   norm = sqrt(sum_of_squares) / loss_scale
//   multiplier = min(1, clip / (norm + 1e-6)) / loss_scale, or 0 if the step is skipped; without
//                clipping (clip = 0) 1 / loss_scale
// Dynamic loss scale: the `hysteresis`-th non-finite step and every later one halve the scale (not
// below min_scale). `window` consecutive finite steps double it (not above 2^32) and reset the
// count of non-finite steps.
void decide_step(Ctx& ctx, const Tensor& scalars, const Tensor& state,
                 const ConstTensor& sum_of_squares, const ConstTensor& loss_sum,
                 const StepDecision& decision);

// Writes scale (2) float64: the factor of each token's gradient, loss_scale / max(1, valid_tokens),
// and the loss scale itself. The maximum keeps the gradients of a batch without valid tokens at 0.
void gradient_scale(Ctx& ctx, const Tensor& scale, const ConstTensor& state, int64_t valid_tokens);

}  // namespace trireme
