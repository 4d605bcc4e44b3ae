// Keys of the run configuration, by group; run_schema() (training/config/run_config.h) has all.
#pragma once

#include "engine/config/schema.h"

namespace trireme {

// Keys of the parallel layout and of ZeRO.
void add_parallel_keys(Schema& schema);
// Keys of the section "finetune".
void add_finetune_keys(Schema& schema);
// Keys of DeepSpeed, Megatron and other frameworks that have no effect here, are refused, or are
// not available.
void add_foreign_keys(Schema& schema);

}  // namespace trireme
