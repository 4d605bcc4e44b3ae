// Lineage that the checkpoints of a training run record.
#pragma once

#include <string>

#include "training/config/run_config.h"
#include "transformer/checkpoint/lineage.h"

namespace trireme {

struct FinetuneData;
struct ResumePlan;

// data: of fine-tuning, else nullptr.
CheckpointLineage run_lineage(const RunConfig& config, const ResumePlan& plan,
                              const FinetuneData* data);

// InputError that names both sets of examples where a run that resumes from the plan's checkpoint
// has others.
void check_same_examples(const RunConfig& config, const ResumePlan& plan,
                         const CheckpointLineage& now);

}  // namespace trireme
