// Kernels of engine/ops/optimizer_step.h. C = compute_t<T>; gradients are C.
#pragma once

#include "engine/core/dtype.h"
#include "engine/core/random.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

// The parameters of a range and how they are written back: to `master` (exactly) and to `param`
// (rounded to nearest), or, with `stochastic`, to `param` alone by stochastic rounding.
template <class T>
struct UpdatedParams {
  T* param;
  compute_t<T>* master;  // null: none
  const compute_t<T>* grad;
  int64_t n;
  bool stochastic;
  RandomKey rounding;
  int64_t element0;
};

template <class T>
struct AdamWUpdate {
  UpdatedParams<T> p;
  void* m;  // C, or bf16 when bf16_state
  void* v;
  bool bf16_state;
  bool decoupled;
  compute_t<T> grad_multiplier, lr, beta1, beta2, eps, weight_decay;
  compute_t<T> m_correction, v_correction;  // 1 / (1 - beta^count)
};

template <class T>
struct SgdUpdate {
  UpdatedParams<T> p;
  void* m;  // null without momentum
  bool bf16_state;
  bool nesterov;
  bool first;  // m starts as the gradient
  compute_t<T> grad_multiplier, lr, momentum, weight_decay;
};

inline constexpr int64_t kSquaresBlock = 1 << 15;  // elements of one partial sum

TRIREME_CPU_KERNEL(adamw_step, (const AdamWUpdate<T>& update, int threads))
TRIREME_CPU_KERNEL(sgd_step, (const SgdUpdate<T>& update, int threads))
// partial[b] = sum of squares of block b
TRIREME_CPU_KERNEL(sum_of_squares, (double* partial, const T* x, int64_t n, int threads))

}  // namespace trireme::cpu
