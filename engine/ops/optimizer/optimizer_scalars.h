// Scalars of one optimizer step and constants of the optimizers, for the updates of
// optimizer_step.h.
#pragma once

#include "engine/core/element_index.h"
#include "engine/core/random.h"

namespace trireme {

// Scalars of one step, written by optim/ and read on the device.
struct StepScalars {
  double grad_multiplier = 1.0;  // 1 / loss scale, times the clip factor
  double learning_rate = 0.0;
  int64_t count = 1;  // number of this update, from 1
  int32_t skip = 0;   // non-zero: the update changes nothing
};
inline constexpr int64_t kStepScalarsBytes = sizeof(StepScalars);

struct AdamWArgs {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double lr_multiplier = 1.0;  // of these elements: factor of StepScalars::learning_rate
  bool decoupled =
      true;  // AdamW (Loshchilov & Hutter 2019); false: L2 added to the gradient (Adam)
  int64_t frozen_after = 0;  // above 0: v does not change, and is that of this count
  RandomKey rounding{};      // key of the stochastic rounding
  ElementIndex index{};      // global index of the range's elements
};

// Members as in AdamWArgs.
struct LionArgs {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0, lr_multiplier = 1.0;
  RandomKey rounding{};
  ElementIndex index{};
};

// Members as in AdamWArgs.
struct SgdArgs {
  double momentum = 0.0, weight_decay = 0.0, lr_multiplier = 1.0;
  bool nesterov = false;
  RandomKey rounding{};
  ElementIndex index{};
};

// Stream of the rounding bits of update number `count`. With the same bits in every update an
// element would always be rounded the same way and drift.
TRIREME_HOST_DEVICE inline uint64_t rounding_stream(const RandomKey& rounding, int64_t count) {
  return substream(rounding.stream, static_cast<uint64_t>(count));
}

}  // namespace trireme
