// Checkpoint lineage of a training run: the base model, examples and chat templates that its
// checkpoints record.
#pragma once

#include <string>

#include "training/config/run_config.h"
#include "transformer/checkpoint/lineage.h"

namespace trireme {

struct FinetuneData;
struct ResumePlan;

// Lineage of a run that follows `plan`. data: examples of a fine-tuning run, else nullptr.
CheckpointLineage run_lineage(const RunConfig& config, const ResumePlan& plan,
                              const FinetuneData* data);

// Checks that a resumed run has the examples that the plan's checkpoint was trained on. InputError
// names both sets.
void check_same_examples(const RunConfig& config, const ResumePlan& plan,
                         const CheckpointLineage& now);

}  // namespace trireme
