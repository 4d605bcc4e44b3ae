// What commands that may run on several ranks have in common.
#pragma once

#include "parallel/launch.h"
#include "training/run_config.h"

namespace CLI {
class App;
}

namespace trireme {

void add_ranks_option(CLI::App& command, int& ranks);  // --ranks N
WorldOptions world_options(const CommConfig& config);

}  // namespace trireme
