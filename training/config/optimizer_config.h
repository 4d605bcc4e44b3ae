// Section "optimizer" of the run configuration: its keys, reader and writer. All three are derived
// from the table of optimizers (optim/optimizers.h) and their hyper-parameters.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

void add_optimizer_keys(Schema& schema);
// Sets config.optimizer. Needs config.dtype and config.finetune.
void read_optimizer(const ConfigValues& values, RunConfig& config, ConfigReport& report);
Json optimizer_to_json(const OptimizerConfig& optimizer);

}  // namespace trireme
