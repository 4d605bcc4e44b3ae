#include "commands/training/training_memory.h"

#include "training/run/memory_plan.h"

namespace trireme {

std::vector<TrainingMemoryRow> training_memory(const ModelConfig& model, int64_t sequence_length) {
  std::vector<TrainingMemoryRow> rows;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TrainingMemory memory = plan_training_memory(model, dtype, sequence_length);
    rows.push_back(
        {text(dtype), memory.parameters, memory.gradients, memory.optimizer, memory.activations});
  }
  return rows;
}

}  // namespace trireme
