// Part of a training run, in any layout: loads a checkpoint, trains, saves one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

// Parameters and state of all ranks after the last step.
struct RunPart {
  using Tensors = std::map<std::string, std::vector<double>>;

  std::map<std::string, Tensors>
      tensors;                 // by kind ("param", "router", ...), as the owners have it
  std::string replica;         // tensor of which a rank has another value than its owner; "": none
  std::vector<double> losses;  // of each step
};

// Wraps a rank's loading, passed as second argument, to inject a fault.
using LoadHook = std::function<void(LayoutRank&, const std::function<void()>&)>;

// Runs steps [from, to) after loading the newest checkpoint of `load` ("": none), and saves under
// `save` ("": does not save).
RunPart run_part(const LayoutCase& c, int64_t from, int64_t to, const std::string& load,
                 const std::string& save, const LoadHook& load_hook = {},
                 const LayoutRunOptions& options = {});

}  // namespace trireme::test
