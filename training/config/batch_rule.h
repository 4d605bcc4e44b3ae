// Batch rule: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x
// data-parallel ranks x sites. Sizes that the configuration does not set follow from those that it
// sets.
#pragma once

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Sets train_batch_size and micro_batch_size, in sequences, and gradient_accumulation_steps of
// `config`, whose layout and sites have been read. The configuration may set any two of the
// sizes, or only train_batch_size or train_micro_batch_size_per_gpu (then
// gradient_accumulation_steps is 1). If it sets all three, they must satisfy the rule.
void read_batch(const ConfigValues& values, RunConfig& config, ConfigReport& report);

}  // namespace trireme
