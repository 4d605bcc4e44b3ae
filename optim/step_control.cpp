#include "optim/step_control.h"

#include <cmath>
#include <cstring>

#include "optim/cuda/step_control.h"

namespace trireme {

StepState initial_step_state(DType dtype, const LossScaleConfig& config) {
  StepState state;
  state.hysteresis_left = config.hysteresis;
  if (dtype == DType::kF16)
    state.loss_scale = config.static_scale > 0
                           ? config.static_scale
                           : std::exp2(static_cast<double>(config.initial_scale_power));
  return state;
}

void decide_step(Ctx& ctx, const Tensor& scalars, const Tensor& state,
                 const ConstTensor& sum_of_squares, const ConstTensor& loss_sum,
                 const StepDecision& decision) {
  check_operand("decide_step", "scalars", scalars, DType::kU8, {kStepScalarsBytes});
  check_operand("decide_step", "state", state, DType::kU8, {kStepStateBytes});
  check_operand("decide_step", "sum_of_squares", sum_of_squares, DType::kF64, {1});
  check_operand("decide_step", "loss_sum", loss_sum, DType::kF64, {1});
  if (ctx.gpu != nullptr)
    return cuda::decide_step(*ctx.gpu, static_cast<StepScalars*>(scalars.raw()),
                             static_cast<StepState*>(state.raw()), sum_of_squares.as<double>(),
                             loss_sum.as<double>(), decision);
  StepState next;
  std::memcpy(&next, state.raw(), sizeof next);
  const StepScalars out =
      decide(next, *sum_of_squares.as<double>(), *loss_sum.as<double>(), decision);
  std::memcpy(scalars.raw(), &out, sizeof out);
  std::memcpy(state.raw(), &next, sizeof next);
}

void gradient_scale(Ctx& ctx, const Tensor& scale, const ConstTensor& state, int64_t valid_tokens) {
  check_operand("gradient_scale", "scale", scale, DType::kF64, {2});
  check_operand("gradient_scale", "state", state, DType::kU8, {kStepStateBytes});
  if (ctx.gpu != nullptr)
    return cuda::gradient_scale(*ctx.gpu, scale.as<double>(),
                                static_cast<const StepState*>(state.raw()), valid_tokens);
  StepState now;
  std::memcpy(&now, state.raw(), sizeof now);
  scale_gradient(scale.as<double>(), now, valid_tokens);
}

}  // namespace trireme
