// Section "optimizer" of a run's configuration: schema rows, reader and writer. All are derived
// from the table of optimizers (optim/optimizers.h) and the hyper-parameters that each declares.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

void add_optimizer_keys(Schema& schema);
// Needs config.dtype and config.finetune.
void read_optimizer(const ConfigValues& values, RunConfig& config, ConfigReport& report);
Json optimizer_to_json(const OptimizerConfig& optimizer);

}  // namespace trireme
