// Reader of the section "finetune".
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Call after the model, the batch and the tokenizer are read.
void read_finetune(const ConfigValues& values, RunConfig& config, ConfigReport& report);
// Sets train_steps, from num_train_epochs if that is given; `sequences` counts an epoch's
// sequences.
void read_train_steps(const ConfigValues& values, RunConfig& config, ConfigReport& report,
                      const CountSequences& sequences);
Json finetune_json(const FinetuneConfig& finetune);

}  // namespace trireme
