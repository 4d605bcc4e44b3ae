// Kernels of engine/ops/optimizer_step.h: the updates.
#pragma once

#include "engine/core/dtype.h"
#include "engine/core/random.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

// What both updates read and write.
template <class T>
struct UpdateRange {
  using F = compute_t<T>;
  T* param;
  float* master;  // null: the parameters are in `param`
  const F* grad;
  void *m, *v;      // null when absent
  bool bf16_state;  // m and v are bf16, otherwise F
  int64_t n;
  RandomKey key;                         // of this update's rounding
  int64_t first, width, stride, offset;  // ElementIndex
};

template <class T>
struct AdamWUpdate {
  using F = compute_t<T>;
  UpdateRange<T> range;
  F grad_multiplier, beta1, beta2, eps;
  F one_minus_beta1, one_minus_beta2;  // rounded once, from float64
  F step;                              // lr / (1 - beta1^count)
  F inverse_sqrt_bias2;                // 1 / sqrt(1 - beta2^count)
  F decay;                             // decoupled: lr * weight_decay; else weight_decay
  bool decoupled;
};

template <class T>
struct SgdUpdate {
  using F = compute_t<T>;
  UpdateRange<T> range;
  F grad_multiplier, learning_rate, momentum, weight_decay;
  bool nesterov;
  bool first;  // m holds nothing yet
};

TRIREME_CPU_KERNEL(adamw, (const AdamWUpdate<T>& a, int threads))
TRIREME_CPU_KERNEL(sgd, (const SgdUpdate<T>& a, int threads))

}  // namespace trireme::cpu
