// Settings that the ranks of a training run must share (parallel/same_on_ranks.h).
#pragma once

#include "parallel/same_on_ranks.h"
#include "training/config/run_config.h"

namespace trireme {

// Each key of the resolved configuration and its value as JSON; paths of token files without their
// folders. Left out is what a rank has for itself: its threads and the folder of its offloaded
// states.
RankFacts config_facts(const RunConfig& config);

// These, and the sizes and samples of the token files or the files of examples, or why one cannot
// be read.
RankFacts run_facts(const RunConfig& config);

}  // namespace trireme
