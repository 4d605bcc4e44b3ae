// Kind of optimizer state: one array as long as the parameters.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "engine/core/tensor.h"
#include "parallel/shard_map.h"

namespace trireme {

struct StateKind {
  std::string name;  // "exp_avg"
  DType dtype;
};

// Called for a window of elements with its part of each kind of state.
using StateVisit = std::function<void(const FlatRange& window, std::span<const Tensor> states)>;

}  // namespace trireme
