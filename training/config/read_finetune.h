// Reading the section "finetune".
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// After the model, the batch and the tokenizer are read.
void read_finetune(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// train_steps, or what num_train_epochs come to; `sequences` counts those of an epoch.
void read_train_steps(const ConfigValues& values, RunConfig& config, ConfigReport& report,
                      const CountSequences& sequences);
Json finetune_json(const FinetuneConfig& finetune);

}  // namespace trireme
