// Memory of training for `trireme checkpoint inspect`; no rows in a build without the trainer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transformer/model/model.h"

namespace trireme {

struct TrainingMemoryRow {
  std::string dtype;                                     // of the run: "float32"
  int64_t parameters = 0, gradients = 0, optimizer = 0;  // bytes
  int64_t activations = 0;                               // bytes; -1: not planned
};
// Returns a row for float32 and one for bfloat16, for one rank with the whole model, AdamW and
// micro-batches of one sequence of sequence_length tokens.
std::vector<TrainingMemoryRow> training_memory(const ModelConfig& model, int64_t sequence_length);

}  // namespace trireme
