// Reader of the layout keys of a configuration, and checks of combinations.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets config.parallel and config.pipeline for a run of `world_size` ranks. Needs config.model.
void read_parallel(const ConfigValues& values, int world_size, RunConfig& config,
                   ConfigReport& report);
// Sets config.zero.
void read_zero(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Checks batch and model against the sizes of the layout; needs the batch sizes.
void check_layout(const ConfigValues& values, const RunConfig& config, ConfigReport& report);

}  // namespace trireme
