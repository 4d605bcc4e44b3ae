// `trireme eval`: the loss of a saved model on token files.
#pragma once

#include <string>

#include "parallel/comm/world.h"
#include "training/evaluate.h"

namespace trireme {

struct EvaluateOptions {
  std::string model;             // run directory or checkpoint
  std::string data;              // token file prefix; empty: the run's own validation data
  int64_t sequence_length = 0;   // 0: as trained
  int64_t micro_batch_size = 0;  // 0: as trained
  int64_t max_samples = 0;       // 0: all
  // Any layout, whatever the model was trained under; the ranks these leave share the samples.
  int tensor_parallel = 1, pipeline_parallel = 1;
};

struct EvaluateReport {
  std::string checkpoint;
  std::string data;  // description
  EvalResult result;
  double seconds = 0;
};

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world);

}  // namespace trireme
