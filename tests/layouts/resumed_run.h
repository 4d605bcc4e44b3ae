// Part of a training run: loads a checkpoint, trains, saves one, in any layout.
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
      tensors;          // by kind ("param", "router", ...), as the owners have it
  std::string replica;  // a tensor that some rank has with another value than its owner, or ""
  std::vector<double> losses;  // of each step
};

// Wrapper of a rank's loading, which is the second argument: plants a bug in it.
using LoadHook = std::function<void(LayoutRank&, const std::function<void()>&)>;

// Steps [from, to) after loading the newest checkpoint of `load` ("": none); then saved under
// `save` (likewise).
RunPart run_part(const LayoutCase& c, int64_t from, int64_t to, const std::string& load,
                 const std::string& save, const LoadHook& load_hook = {});

}  // namespace trireme::test
