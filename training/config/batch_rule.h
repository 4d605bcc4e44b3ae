// The batch rule: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps
// x data-parallel ranks. What is not given follows from what is.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets the three sizes of `config`. Given: any two; or train_batch_size alone (one pass a step); or
// train_micro_batch_size_per_gpu alone (one pass a step); all three must agree.
void read_batch(const ConfigValues& values, int data_ranks, RunConfig& config,
                ConfigReport& report);

}  // namespace trireme
