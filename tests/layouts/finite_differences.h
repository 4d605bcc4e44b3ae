// Comparison of gradients with finite differences of the loss.
#pragma once

#include <functional>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

struct SlopeCheck {
  // Selects among the trained parameters; absent: all.
  std::function<bool(const ParameterSpec&)> chosen = {};
  // Adds to the gradient what the backward pass leaves out by definition. Both tensors have the
  // layout of the store's flat_values(); the gradient is zero for frozen parameters.
  std::function<void(const ParameterStore& store, const Tensor& values, const Tensor& gradient)>
      complete = {};
};

// Trains one rank in float64 and compares the gradient of its second step (after the first, B of
// the adapters is not zero) with central differences of that step's loss, for one element of each
// parameter. Returns the number of parameters compared.
int expect_slopes(const RunConfig& config, const SlopeCheck& check = {});

}  // namespace trireme::test
