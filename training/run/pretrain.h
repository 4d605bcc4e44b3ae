// The training run, from fresh weights or of a model that is fine-tuned: everything between a
// checked configuration and a saved model.
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
  std::shared_ptr<FinetuneData> finetune = {};  // of a fine-tuning run, else opened by it
  bool validate_only = false;  // print what the run will need, train nothing, write nothing
};

// Runs on every rank of `world`. kDone, or kStoppedSaved when a signal asked for it; throws Error
// with kDiverged after max_consecutive_skips non-finite steps in a row.
ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options,
                  SignalRequests& signals);

}  // namespace trireme
