// Reader of the parallel-layout and ZeRO keys of the run configuration, and checks of their
// combinations.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets config.parallel, config.cp_comm_type and config.pipeline for a run of `world_size` ranks.
// Needs config.model.
void read_parallel(const ConfigValues& values, int world_size, RunConfig& config,
                   ConfigReport& report);
// Sets config.zero.
void read_zero(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Checks that the layout fits the model, the batch sizes and the pipeline schedule. Needs all
// three.
void check_layout(const ConfigValues& values, const RunConfig& config, ConfigReport& report);

}  // namespace trireme
