// Batch rule: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x
// data-parallel ranks. Missing sizes follow from the given ones.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets the three sizes of `config`. Given may be any two; train_batch_size alone (one micro-batch
// per step); or train_micro_batch_size_per_gpu alone (one micro-batch per step). If all three are
// given they must agree.
void read_batch(const ConfigValues& values, int data_ranks, RunConfig& config,
                ConfigReport& report);

}  // namespace trireme
