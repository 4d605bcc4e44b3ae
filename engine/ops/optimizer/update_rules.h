// Update rules of the optimizers, each written once for CPU vectors and GPU threads:
//   Args           constants of the optimizer (optimizer_scalars.h)
//   kOp            name of its op in optimizer_step.h
//   kSecondMoment  whether it has v in addition to m
//   coefficients<F>(args, scalars)       coefficients of one step, computed in float64 and rounded
//       to F
//   element<Math>(c, has_m, p, g, m, v)  updates p, m and v of one element, or of a vector of
//       elements, in place; g is the gradient before grad_multiplier; m is unused if !has_m, v if
//       !kSecondMoment
// Math has square_root(x) and multiply_add(a, x, y) = a x + y, rounded once if the instruction set
// has a fused multiply-add. With plain operators a compiler may contract a product and a sum
// differently in two copies of a loop (it does in SGD's), which would break bit reproducibility.
// The kernels load, round and store; they are compiled for each rule of TRIREME_UPDATE_RULES.
#pragma once

#include <cmath>

#include "engine/ops/optimizer/optimizer_scalars.h"

#define TRIREME_UPDATE_RULES(RULE) RULE(AdamWRule) RULE(SgdRule) RULE(LionRule)

namespace trireme {

// 1 - beta^count without cancellation for beta near 1; beta in [0, 1), count >= 1.
TRIREME_HOST_DEVICE inline double bias_correction(double beta, int64_t count) {
  return beta > 0 ? -std::expm1(static_cast<double>(count) * std::log(beta)) : 1.0;
}

struct AdamWRule {
  using Args = AdamWArgs;
  static constexpr const char* kOp = "adamw_step";
  static constexpr bool kSecondMoment = true;

  template <class F>
  struct Coefficients {
    F grad_multiplier, beta1, beta2, eps;
    F one_minus_beta1, one_minus_beta2;  // rounded once, from float64
    F step;                              // lr / (1 - beta1^count)
    F inverse_sqrt_bias2;                // 1 / sqrt(1 - beta2^count)
    F decay;                             // decoupled: lr * weight_decay; else weight_decay
    bool decoupled, frozen;
  };

  template <class F>
  TRIREME_HOST_DEVICE static Coefficients<F> coefficients(const Args& args, const StepScalars& s) {
    const double lr = s.learning_rate * args.lr_multiplier;
    const bool frozen = args.frozen_after > 0;
    const double bias2 = bias_correction(args.beta2, frozen ? args.frozen_after : s.count);
    return {
        .grad_multiplier = static_cast<F>(s.grad_multiplier),
        .beta1 = static_cast<F>(args.beta1),
        .beta2 = static_cast<F>(args.beta2),
        .eps = static_cast<F>(args.eps),
        .one_minus_beta1 = static_cast<F>(1.0 - args.beta1),
        .one_minus_beta2 = static_cast<F>(1.0 - args.beta2),
        .step = static_cast<F>(lr / bias_correction(args.beta1, s.count)),
        .inverse_sqrt_bias2 = static_cast<F>(1.0 / std::sqrt(bias2)),
        .decay = static_cast<F>(args.decoupled ? lr * args.weight_decay : args.weight_decay),
        .decoupled = args.decoupled,
        .frozen = frozen,
    };
  }

  template <class Math, class F, class V>
  TRIREME_HOST_DEVICE [[gnu::always_inline]] static void element(const Coefficients<F>& c, bool,
                                                                 V& p, V g, V& m, V& v) {
    g *= c.grad_multiplier;
    if (!c.decoupled) g += c.decay * p;
    m = c.beta1 * m + c.one_minus_beta1 * g;
    if (!c.frozen) v = c.beta2 * v + c.one_minus_beta2 * (g * g);
    const V update = m / (Math::square_root(v) * c.inverse_sqrt_bias2 + c.eps);
    if (c.decoupled) p -= c.decay * p;
    p -= c.step * update;
  }
};

struct SgdRule {
  using Args = SgdArgs;
  static constexpr const char* kOp = "sgd_step";
  static constexpr bool kSecondMoment = false;

  template <class F>
  struct Coefficients {
    F grad_multiplier, learning_rate, momentum, weight_decay;
    bool nesterov;
    bool first;  // count is 1: m has no value yet
  };

  template <class F>
  TRIREME_HOST_DEVICE static Coefficients<F> coefficients(const Args& args, const StepScalars& s) {
    return {
        .grad_multiplier = static_cast<F>(s.grad_multiplier),
        .learning_rate = static_cast<F>(s.learning_rate * args.lr_multiplier),
        .momentum = static_cast<F>(args.momentum),
        .weight_decay = static_cast<F>(args.weight_decay),
        .nesterov = args.nesterov,
        .first = s.count == 1,
    };
  }

  template <class Math, class F, class V>
  TRIREME_HOST_DEVICE [[gnu::always_inline]] static void element(const Coefficients<F>& c,
                                                                 bool has_m, V& p, V g, V& m, V&) {
    const V d = Math::multiply_add(c.grad_multiplier, g, V(c.weight_decay * p));
    V change = d;
    if (has_m) {
      m = c.first ? d : Math::multiply_add(c.momentum, m, d);
      change = c.nesterov ? Math::multiply_add(c.momentum, m, d) : m;
    }
    p = Math::multiply_add(-c.learning_rate, change, p);
  }
};

struct LionRule {
  using Args = LionArgs;
  static constexpr const char* kOp = "lion_step";
  static constexpr bool kSecondMoment = false;

  template <class F>
  struct Coefficients {
    F grad_multiplier, learning_rate, weight_decay, beta1, beta2;
    F one_minus_beta1, one_minus_beta2;  // rounded once, from float64
  };

  template <class F>
  TRIREME_HOST_DEVICE static Coefficients<F> coefficients(const Args& args, const StepScalars& s) {
    return {
        .grad_multiplier = static_cast<F>(s.grad_multiplier),
        .learning_rate = static_cast<F>(s.learning_rate * args.lr_multiplier),
        .weight_decay = static_cast<F>(args.weight_decay),
        .beta1 = static_cast<F>(args.beta1),
        .beta2 = static_cast<F>(args.beta2),
        .one_minus_beta1 = static_cast<F>(1.0 - args.beta1),
        .one_minus_beta2 = static_cast<F>(1.0 - args.beta2),
    };
  }

  template <class Math, class F, class V>
  TRIREME_HOST_DEVICE [[gnu::always_inline]] static void element(const Coefficients<F>& c, bool,
                                                                 V& p, V g, V& m, V&) {
    g *= c.grad_multiplier;
    const V step = Math::multiply_add(c.beta1, m, V(c.one_minus_beta1 * g));
    m = Math::multiply_add(c.beta2, m, V(c.one_minus_beta2 * g));
    const V one = V{} + F(1);
    const V sign = step > F(0) ? one : (step < F(0) ? V(-one) : step);  // NaN stays NaN
    p = Math::multiply_add(-c.learning_rate, Math::multiply_add(c.weight_decay, p, sign), p);
  }
};

}  // namespace trireme
