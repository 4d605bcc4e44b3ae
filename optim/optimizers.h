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
  const char* summary;  // of the configuration reference; "": none
  // Type that optimizer.params.adam_w_mode: true makes of this one, DeepSpeed's default; nullptr:
  // the key has no effect.
  const char* with_adam_w_mode = nullptr;
};

// The first is the default of optimizer.type.
std::span<const OptimizerRow> optimizers();
// Names that other programs have and this one has not.
std::span<const char* const> unavailable_optimizers();
// Error for a name that no row has.
const OptimizerRow& optimizer_row(const std::string& name);

}  // namespace trireme
