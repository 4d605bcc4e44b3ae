// Memory of one rank that trains a model, planned without its weights.
#pragma once

#include "engine/core/dtype.h"
#include "transformer/model/model.h"

namespace trireme {

// Sizes that no published model reaches. Beyond them activations are not planned: packing them
// takes time quadratic in the layers, and their bytes could overflow 64 bits.
inline constexpr int64_t kMaxPlannedLayers = 1024, kMaxPlannedWidth = 1 << 22;

struct TrainingMemory {  // bytes
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  int64_t activations = 0;  // and scratch of one step; -1: not planned
};

// Plans one rank that holds the whole model, with the defaults of a run's configuration (AdamW, no
// recomputation) and micro-batches of one sequence. Allocates none of it: activations are from a
// planning run of a step (TrainStep::plan()).
TrainingMemory plan_training_memory(const ModelConfig& model, DType dtype, int64_t sequence_length);

}  // namespace trireme
