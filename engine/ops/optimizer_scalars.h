// What decides an update beside its operands: the scalars of the step, the constants of the optimizer, and
// the coefficients that the kernels of both sides make of them.
#pragma once

#include <cmath>

#include "engine/core/element_index.h"
#include "engine/core/random.h"

namespace trireme {

// The scalars of one optimizer step, written by optim/ and read by the updates of optimizer_step.h.
struct StepScalars {
  double grad_multiplier = 1.0;  // 1 / loss scale, times the clip factor
  double learning_rate = 0.0;
  int64_t count = 1;  // number of this update (from 1), for bias correction
  int32_t skip = 0;   // non-zero: leave everything as it is
};
inline constexpr int64_t kStepScalarsBytes = sizeof(StepScalars);

struct AdamWArgs {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double lr_multiplier = 1.0;
  bool decoupled =
      true;              // AdamW (Loshchilov & Hutter 2019); false: L2 added to the gradient (Adam)
  RandomKey rounding{};  // of the stochastic rounding
  ElementIndex index{};  // keys the rounding
};

struct SgdArgs {
  double momentum = 0.0, weight_decay = 0.0, lr_multiplier = 1.0;
  bool nesterov = false;
  RandomKey rounding{};
  ElementIndex index{};
};

template <class F>
struct AdamWCoefficients {
  F grad_multiplier, beta1, beta2, eps;
  F one_minus_beta1, one_minus_beta2;  // rounded once, from float64
  F step;                              // lr / (1 - beta1^count)
  F inverse_sqrt_bias2;                // 1 / sqrt(1 - beta2^count)
  F decay;                             // decoupled: lr * weight_decay; else weight_decay
  bool decoupled;
};

template <class F>
struct SgdCoefficients {
  F grad_multiplier, learning_rate, momentum, weight_decay;
  bool nesterov;
  bool first;  // m holds nothing yet
};

// 1 - beta^count without cancellation for beta near 1.
TRIREME_HOST_DEVICE inline double bias_correction(double beta, int64_t count) {
  return beta > 0 ? -std::expm1(static_cast<double>(count) * std::log(beta)) : 1.0;
}

template <class F>
TRIREME_HOST_DEVICE AdamWCoefficients<F> update_coefficients(const AdamWArgs& args,
                                                             const StepScalars& s) {
  const double lr = s.learning_rate * args.lr_multiplier;
  return {
      .grad_multiplier = static_cast<F>(s.grad_multiplier),
      .beta1 = static_cast<F>(args.beta1),
      .beta2 = static_cast<F>(args.beta2),
      .eps = static_cast<F>(args.eps),
      .one_minus_beta1 = static_cast<F>(1.0 - args.beta1),
      .one_minus_beta2 = static_cast<F>(1.0 - args.beta2),
      .step = static_cast<F>(lr / bias_correction(args.beta1, s.count)),
      .inverse_sqrt_bias2 = static_cast<F>(1.0 / std::sqrt(bias_correction(args.beta2, s.count))),
      .decay = static_cast<F>(args.decoupled ? lr * args.weight_decay : args.weight_decay),
      .decoupled = args.decoupled,
  };
}

template <class F>
TRIREME_HOST_DEVICE SgdCoefficients<F> update_coefficients(const SgdArgs& args,
                                                           const StepScalars& s) {
  return {
      .grad_multiplier = static_cast<F>(s.grad_multiplier),
      .learning_rate = static_cast<F>(s.learning_rate * args.lr_multiplier),
      .momentum = static_cast<F>(args.momentum),
      .weight_decay = static_cast<F>(args.weight_decay),
      .nesterov = args.nesterov,
      .first = s.count == 1,
  };
}

// Each update has random bits of its own: with the same bits every time, an element whose bits say "up"
// would drift.
TRIREME_HOST_DEVICE inline uint64_t rounding_stream(const RandomKey& rounding, int64_t count) {
  return substream(rounding.stream, static_cast<uint64_t>(count));
}

}  // namespace trireme
