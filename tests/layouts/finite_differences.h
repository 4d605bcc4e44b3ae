// Gradients against differences of the loss.
#pragma once

#include <functional>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

struct SlopeCheck {
  // Of the parameters that are trained; absent: all.
  std::function<bool(const ParameterSpec&)> chosen = {};
  // Adds what the backward pass leaves out by definition to the gradient, which is laid out as the
  // values are and zero for what is frozen. Both are those of the store's flat_values().
  std::function<void(const ParameterStore& store, const Tensor& values, const Tensor& gradient)>
      complete = {};
};

// Trains one rank in float64 and compares the gradient of its second step (after the first, the B
// of adapters are not zero) with central differences of that step's loss, for one element of each
// parameter. Returns how many.
int expect_slopes(const RunConfig& config, const SlopeCheck& check = {});

}  // namespace trireme::test
