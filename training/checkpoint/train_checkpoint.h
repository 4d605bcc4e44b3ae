// What a training run saves and how it comes back: parameters, optimizer state, step state,
// position in the data, configuration. The file format is engine/io/sharded_checkpoint.h.
#pragma once

#include "engine/io/sharded_checkpoint.h"
#include "parallel/comm/communicator.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"
#include "training/step/train_step.h"

namespace trireme {

struct CheckpointLineage;

struct TrainPosition {
  int64_t step = 0;              // optimizer steps done, skipped ones included
  int64_t consumed_samples = 0;  // sequences taken from the training data
  // Steps in a row up to here that were skipped as not finite, without those that a dynamic loss
  // scale explains.
  int64_t skipped_row = 0;
};

// What a run comes from, as its checkpoints keep it.
struct CheckpointSources {
  const CheckpointLineage* lineage = nullptr;
  const std::vector<TokenFileIdentity>* data = nullptr;
};

// Collective. Every rank writes its share of the tensors; beside adapters what is frozen is not
// written, it is that of checkpoint.load. InputError on all ranks when one fails (full disk);
// nothing is left behind and older checkpoints stay. sources: on rank 0.
SavedCheckpoint save_train_checkpoint(Ctx& ctx, const RunConfig& config, const TrainState& state,
                                      const TrainPosition& position, const Groups& groups,
                                      const CheckpointSources& sources = {});

// The token files a checkpoint's run has learned from; empty where an earlier version saved it.
std::vector<TokenFileIdentity> saved_data_identity(const CheckpointReader& reader);

// Loads everything into an allocated state. InputError when the checkpoint's tensors do not fit the
// model of `config`.
TrainPosition load_train_checkpoint(Ctx& ctx, const CheckpointReader& reader, TrainState& state);

// Parameters and routers' biases from a model that find_model() found, everything else as in a
// fresh run; adapters from PEFT's directory `adapter`, empty: such as change nothing. begins: these
// adapters are used; where a checkpoint is loaded over them first, the lengths of the weights' rows
// need not be computed. Says where the configuration of the run differs from the model's.
void load_initial_weights(Ctx& ctx, const std::string& path, const std::string& adapter,
                          bool begins, TrainState& state);

// The configuration stored in a run's checkpoint, resolved for the number of ranks that wrote it.
RunConfig checkpoint_run_config(const CheckpointReader& reader);

}  // namespace trireme
