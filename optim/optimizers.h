// Registry of optimizers by name.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "optim/optimizer.h"

namespace trireme {

struct OptimizerRow {
  const char* name;  // value of optimizer.type
  std::unique_ptr<Optimizer> (*make)();
  const char* summary;  // line of the configuration reference; "": none
  // Optimizer used instead if optimizer.params.adam_w_mode is true (DeepSpeed's default). nullptr:
  // the key has no effect.
  const char* with_adam_w_mode = nullptr;
};

// All optimizers; the first is the default of optimizer.type.
std::span<const OptimizerRow> optimizers();
// Names of other programs' optimizers, which are refused as not available in this version.
std::span<const char* const> unavailable_optimizers();
// Row of an optimizer. An unknown name is a failed check: the configuration refuses it earlier.
const OptimizerRow& optimizer_row(const std::string& name);

}  // namespace trireme
