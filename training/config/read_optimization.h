// Readers of the sections "fp8" and "scheduler" of the run configuration, which include DeepSpeed's
// names.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets config.float8. Needs config.dtype, the model, the layout and the batch sizes.
void read_float8(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Sets config.scheduler. Needs config.train_steps and config.optimizer.lr.
void read_scheduler(const ConfigValues& values, RunConfig& config, ConfigReport& report);

}  // namespace trireme
