// Lineage recorded in the checkpoints of a training run.
#pragma once

#include <string>

#include "training/config/run_config.h"
#include "transformer/checkpoint/lineage.h"

namespace trireme {

struct FinetuneData;
struct ResumePlan;

// data: for fine-tuning, else nullptr.
CheckpointLineage run_lineage(const RunConfig& config, const ResumePlan& plan,
                              const FinetuneData* data);

// InputError with both sets of examples if a run that resumes from the plan's checkpoint has other
// examples.
void check_same_examples(const RunConfig& config, const ResumePlan& plan,
                         const CheckpointLineage& now);

}  // namespace trireme
