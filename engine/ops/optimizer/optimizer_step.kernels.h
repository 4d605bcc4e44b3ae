// Kernels of engine/ops/optimizer/optimizer_step.h: the updates.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"
#include "engine/ops/optimizer/update_rules.h"

namespace trireme::cpu {

// Operands of an update, (n) each.
template <class T>
struct UpdateRange {
  using F = compute_t<T>;
  T* param;
  float* master;  // null: the parameters are in `param`
  const F* grad;
  void *m, *v;      // null when absent
  bool bf16_state;  // m and v are bf16, otherwise F
  int64_t n;
  RandomKey key;                         // key of this update's rounding
  int64_t first, width, stride, offset;  // of ElementIndex
};

template <class R, class T>
struct RuleUpdate {
  using Rule = R;
  using Element = T;
  UpdateRange<T> range;
  typename R::template Coefficients<compute_t<T>> c;
};

// Updates all elements of the range. T: a RuleUpdate.
TRIREME_CPU_KERNEL(apply_rule, (const T& a, int threads))

}  // namespace trireme::cpu

// GPU kernels. The scalars of the step stay on the device: each thread block computes from them the
// coefficients that the CPU kernels get as arguments.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// range.key is args.rounding: the kernel derives the key of this update (rounding_stream()).
template <class Rule, class T>
struct RuleStep {
  cpu::UpdateRange<T> range;
  const StepScalars* scalars;
  typename Rule::Args args;
};

template <class Rule, class T>
TRIREME_CUDA_DECL void apply_rule(Context& gpu, const RuleStep<Rule, T>& a);

}  // namespace trireme::cuda
