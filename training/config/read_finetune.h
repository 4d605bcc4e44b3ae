// Section "finetune" of the run configuration: reader and writer.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets config.finetune and makes an existing path in config.checkpoint.load absolute. Needs
// config.model, parallel, float8, checkpoint and the tokenizer.
void read_finetune(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Sets config.train_steps; "auto" is computed from num_train_epochs. Needs config.finetune and the
// batch sizes. sequences: counts the sequences of one epoch; not called if `report` has errors.
void read_train_steps(const ConfigValues& values, RunConfig& config, ConfigReport& report,
                      const CountSequences& sequences);
Json finetune_json(const FinetuneConfig& finetune);

}  // namespace trireme
