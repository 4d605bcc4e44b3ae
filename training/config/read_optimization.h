// Readers of the sections fp8 and scheduler of a run's configuration, including DeepSpeed's names.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Needs config.dtype, the model, the layout and the sizes of a batch.
void read_float8(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Needs config.train_steps and config.optimizer.lr.
void read_scheduler(const ConfigValues& values, RunConfig& config, ConfigReport& report);

}  // namespace trireme
