// Readers of the sections "fp8" and "scheduler" of the run configuration, which include DeepSpeed's
// names.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets config.float8. Needs config.dtype, the model, the layout, the batch sizes and
// sequence_length.
void read_float8(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Sets config.scheduler. Needs config.train_steps, config.optimizer.lr and config.finetune, whose
// runs have another default warm-up.
void read_scheduler(const ConfigValues& values, RunConfig& config, ConfigReport& report);

}  // namespace trireme
