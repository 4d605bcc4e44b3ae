// Training run, pretraining or fine-tuning, from a checked configuration to a saved model.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/world.h"
#include "training/config/run_config.h"
#include "training/run/signals.h"

namespace trireme {

struct FinetuneData;

struct PretrainOptions {
  std::string resume;  // "", "auto" or a checkpoint (training/run/run_directory.h)
  std::shared_ptr<FinetuneData> finetune = {};  // fine-tuning: opened data; null: the run opens it
  bool validate_only = false;  // check everything, print the memory needed, and return
};

// Trains. Collective over `world`. Returns kDone, or kStoppedSaved after a stop by signal. Throws
// Error with kDiverged after max_consecutive_skips non-finite steps in a row, or if the run's last
// step is not finite.
ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options,
                  SignalRequests& signals);

}  // namespace trireme
