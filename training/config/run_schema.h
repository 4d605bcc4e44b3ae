// Parts of the run's table of keys; run_schema() in run_config.h is the whole.
#pragma once

#include "engine/config/schema.h"

namespace trireme {

// Keys of the parallel layout.
void add_parallel_keys(Schema& schema);
void add_finetune_keys(Schema& schema);
// Keys of DeepSpeed, Megatron and others that have no effect here, are refused, or name features
// that are not built yet.
void add_foreign_keys(Schema& schema);

}  // namespace trireme
