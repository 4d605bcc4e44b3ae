// Kernels of engine/ops/optimizer_step.h: the updates.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"
#include "engine/ops/optimizer_scalars.h"

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
  UpdateRange<T> range;
  AdamWCoefficients<compute_t<T>> c;
};

template <class T>
struct SgdUpdate {
  UpdateRange<T> range;
  SgdCoefficients<compute_t<T>> c;
};

TRIREME_CPU_KERNEL(adamw, (const AdamWUpdate<T>& a, int threads))
TRIREME_CPU_KERNEL(sgd, (const SgdUpdate<T>& a, int threads))

}  // namespace trireme::cpu
