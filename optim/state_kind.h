// Kind of optimizer state: an array with one element per parameter element.
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

// Function on a window of elements. states: the window's part of each kind of state.
using StateVisit = std::function<void(const FlatRange& window, std::span<const Tensor> states)>;

}  // namespace trireme
