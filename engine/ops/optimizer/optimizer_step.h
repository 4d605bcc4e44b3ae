// Fused optimizer updates and norms over flat ranges. Scalars that are computed within a step
// (skip, clip factor, step count) are read on the device, so that the host need not wait for them.
#pragma once

#include "engine/ops/context.h"
#include "engine/ops/optimizer/optimizer_scalars.h"

namespace trireme {

// AdamW (Loshchilov & Hutter 2019) or, if not `decoupled`, Adam (Kingma & Ba 2015). For every
// element, with g = grad * grad_multiplier and lr = learning_rate * lr_multiplier:
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr * (m / (1 - beta1^count) / (sqrt(v / (1 - beta2^count)) + eps) + weight_decay * p)
// Adam adds weight_decay * p to g instead. With frozen_after v does not change, and frozen_after
// replaces the count in its correction (1-bit Adam, Tang et al. 2021).
//   param  (n)  any float dtype
//   master (n)  float32, optional, for a bf16 or f16 param: p is kept in `master` if present, and
//               param is master rounded to nearest
//   grad   (n)  float32 (float64 for float64)
//   m, v   (n)  float32 or bfloat16 (float64 for float64), both of one dtype
//   scalars (kStepScalarsBytes) uint8: a StepScalars; if its `skip` is not 0, nothing changes
// All are contiguous.
//
// Stochastic rounding: bf16 m and v, and a bf16 param without master, are rounded up or down with
// the probabilities that make the expected value exact. Rounding to nearest would lose every change
// under half a unit in the last place (2^-9 to 2^-8 of the value): small updates of p, and the
// whole decay of v when 1 - beta2 is below that. The bits depend on (rounding, count, global
// element index): the lower half of the element's word for p, the upper half for m and v. p is
// updated from the unrounded m and v. An f16 param without master is rounded to nearest.
void adamw_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                const Tensor& m, const Tensor& v, const ConstTensor& scalars,
                const AdamWArgs& args);

// SGD: d = g + weight_decay p;  m = momentum m + d;  p -= lr (nesterov ? d + momentum m : m)
// m must be absent if momentum = 0 (then p -= lr d), else present. The first update (count = 1)
// sets m = d. g, lr, dtypes and rounding as in adamw_step.
void sgd_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
              const Tensor& m, const ConstTensor& scalars, const SgdArgs& args);

// Lion (Chen et al. 2023, arXiv 2302.06675), with sign(0) = 0:
//   c = beta1 m + (1 - beta1) g;  p -= lr (sign(c) + weight_decay p);  m = beta2 m + (1 - beta2) g
// g, lr, dtypes and rounding as in adamw_step.
void lion_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
               const Tensor& m, const ConstTensor& scalars, const LionArgs& args);

// out (1) float64 += sum of x^2 (x of any shape and float dtype, contiguous), in float64 over fixed
// blocks, so that the sum does not depend on the number of threads or on the GPU's model.
// Non-finite elements make it non-finite.
void sum_of_squares(Ctx& ctx, const Tensor& out, const ConstTensor& x);

// first (1) int64 = min(first, begin + index of the first non-finite element of x). x (any shape
// and float dtype, contiguous) is the part at offset `begin` of a longer range. The caller sets
// `first` to kNotFound before the first part, and it remains so if every element is finite. With
// `scalars` (kStepScalarsBytes uint8, a StepScalars) it searches only if they mark the step as
// skipped: the search is queued in every step and costs time only in a skipped one.
inline constexpr uint8_t kNotFoundByte = 0x7f;  // every byte of kNotFound
inline constexpr int64_t kNotFound = 0x7f7f7f7f7f7f7f7f;
void first_non_finite(Ctx& ctx, const Tensor& first, const ConstTensor& x, int64_t begin = 0,
                      const ConstTensor& scalars = {});

}  // namespace trireme
