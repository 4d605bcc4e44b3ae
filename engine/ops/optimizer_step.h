// Fused optimizer updates and norms over flat ranges, with every scalar that a step decides (skip,
// clip factor, step count) read from device views, so that no host read is needed inside a step.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// The scalars of one optimizer step, written by optim/ and read by the kernels below.
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
  RandomKey rounding;    // stochastic rounding of bf16 params without master weights
  int64_t element0 = 0;  // global index of the range's first element: keys the rounding
};

// For every element, with g = grad * grad_multiplier:
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr * (m / (1 - beta1^count) / (sqrt(v / (1 - beta2^count)) + eps) + weight_decay * p)
//   param  (n)  any float dtype   master (n) float32 or absent: p is kept in `master` when present
//   grad   (n)  float32 (float64) m, v (n) float32, bfloat16 (or float64)
//   scalars (kStepScalarsBytes) uint8: a StepScalars
// With bf16 param and no master, p is rounded stochastically; bf16 m and v are rounded to nearest.
// param and master are then consistent: param = round(master).
void adamw_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                const Tensor& m, const Tensor& v, const ConstTensor& scalars,
                const AdamWArgs& args);

struct SgdArgs {
  double momentum = 0.0, weight_decay = 0.0, lr_multiplier = 1.0;
  bool nesterov = false;
  RandomKey rounding;
  int64_t element0 = 0;
};

// d = g + weight_decay p;  m = momentum m + d;  p -= lr (nesterov ? d + momentum m : m)
// m is absent when momentum = 0 (then p -= lr d). The first update sets m = d (count == 1).
void sgd_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
              const Tensor& m, const ConstTensor& scalars, const SgdArgs& args);

// out (1) float64: += sum of x^2 over the range (x any float dtype), in float64 over fixed blocks, so
// the sum does not depend on the number of threads. Non-finite elements make it non-finite.
void sum_of_squares(Ctx& ctx, const Tensor& out, const ConstTensor& x);

// Index of the first element that is not finite, or -1.
int64_t first_non_finite(Ctx& ctx, const ConstTensor& x);

}  // namespace trireme
