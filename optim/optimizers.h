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
  const char* summary;  // for the configuration reference; "": none
  // Optimizer type selected by optimizer.params.adam_w_mode: true, DeepSpeed's default; nullptr:
  // the key has no effect.
  const char* with_adam_w_mode = nullptr;
};

// The first row is the default of optimizer.type.
std::span<const OptimizerRow> optimizers();
// Optimizer names of other programs that are not implemented here.
std::span<const char* const> unavailable_optimizers();
// Throws for an unknown name.
const OptimizerRow& optimizer_row(const std::string& name);

}  // namespace trireme
