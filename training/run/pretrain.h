// Training run, from new weights or for fine-tuning: everything between a checked configuration and
// a saved model.
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
  std::shared_ptr<FinetuneData> finetune = {};  // for fine-tuning; null: opened by the run
  bool validate_only = false;  // print what the run will need, train nothing, write nothing
};

// Runs on every rank of `world`. Returns kDone, or kStoppedSaved after a stop by signal; throws
// Error with kDiverged after max_consecutive_skips non-finite steps in a row.
ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options,
                  SignalRequests& signals);

}  // namespace trireme
