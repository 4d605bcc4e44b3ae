// Settings that the ranks of a training run must share (parallel/same_on_ranks.h).
#pragma once

#include "parallel/same_on_ranks.h"
#include "training/config/run_config.h"

namespace trireme {

// Keys of the resolved configuration and their values as JSON; paths of token files without
// folders. Excluded are settings of a single rank: its threads and the folder of its offloaded
// states.
RankFacts config_facts(const RunConfig& config);

// config_facts(), and the sizes and samples of the token files or example files, or why one cannot
// be read.
RankFacts run_facts(const RunConfig& config);

}  // namespace trireme
