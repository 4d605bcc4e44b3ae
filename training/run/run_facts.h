// Settings that the ranks of a training run must share (parallel/same_on_ranks.h).
#pragma once

#include "parallel/same_on_ranks.h"
#include "training/config/run_config.h"

namespace trireme {

// Keys of the resolved configuration, with their values as JSON and paths of data files without
// folders. Excludes keys that may differ between ranks: threads, and the folder of offloaded
// optimizer states.
RankFacts config_facts(const RunConfig& config);

// config_facts(), and the size and checksum of each token file or example file. If a file cannot be
// read, the error is a fact too.
RankFacts run_facts(const RunConfig& config);

}  // namespace trireme
