#include "optim/step_control.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace trireme {
namespace {

constexpr double kLargestScale = 0x1p32;
constexpr double kNormFloor = 1e-6;  // as PyTorch and Megatron clip

void adapt_loss_scale(StepState& state, const LossScaleConfig& config, bool finite) {
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
    state.hysteresis_left = 1;  // once it has begun to fall, each further overflow halves again
  }
  state.good_since_growth = 0;
}

}  // namespace

StepState initial_step_state(DType dtype, const LossScaleConfig& config) {
  StepState state;
  state.hysteresis_left = config.hysteresis;
  if (dtype == DType::kF16)
    state.loss_scale = config.static_scale > 0
                           ? config.static_scale
                           : std::exp2(static_cast<double>(config.initial_scale_power));
  return state;
}

void decide_step(const Tensor& scalars, const Tensor& state_view, const ConstTensor& sum_of_squares,
                 const ConstTensor& loss_sum, const StepDecision& decision) {
  check_shape("decide_step", "scalars", scalars, {kStepScalarsBytes});
  check_shape("decide_step", "state", state_view, {kStepStateBytes});
  StepState state;
  std::memcpy(&state, state_view.raw(), sizeof state);
  const double norm = std::sqrt(*sum_of_squares.as<double>()) / state.loss_scale;
  const bool finite = std::isfinite(norm) && std::isfinite(*loss_sum.as<double>());
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
  out.count = std::max<int64_t>(1, state.updates);
  if (decision.dynamic_scale) adapt_loss_scale(state, decision.loss_scale, finite);
  std::memcpy(scalars.raw(), &out, sizeof out);
  std::memcpy(state_view.raw(), &state, sizeof state);
}

}  // namespace trireme
