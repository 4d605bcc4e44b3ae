// Checkpoint of a training run: parameters, optimizer state, residuals of compressed gradients,
// router biases, fp8 scaling state, step state, data position and configuration, in the file format
// of engine/io/sharded_checkpoint.h.
#pragma once

#include "engine/io/sharded_checkpoint.h"
#include "parallel/comm/communicator.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"
#include "training/step/train_step.h"

namespace trireme {

struct CheckpointLineage;

struct TrainPosition {
  int64_t step = 0;              // completed optimizer steps, including skipped ones
  int64_t consumed_samples = 0;  // sequences read from the training data
  // Number of consecutive skipped steps that end at this step. Steps skipped while a dynamic loss
  // scale searches for its value do not count.
  int64_t consecutive_skips = 0;
};

// Lineage and data of a run, stored in its checkpoints, and the ranks that save together.
struct CheckpointSources {
  const CheckpointLineage* lineage = nullptr;
  const std::vector<TokenFileIdentity>* data = nullptr;
  // Ranks of all sites, if there are several. Their weights must be the shared ones
  // (OuterSync::with_shared_weights()), which are saved once.
  Communicator* all_sites = nullptr;
};

// Saves a checkpoint. Collective: every rank writes the tensors that it owns. With adapters, frozen
// weights are not saved, since checkpoint.load has them. If one rank fails (full disk), all ranks
// throw InputError, no partial checkpoint remains, and older checkpoints are kept. Lineage and data
// are used on rank 0.
SavedCheckpoint save_train_checkpoint(Ctx& ctx, const RunConfig& config, const TrainState& state,
                                      const TrainPosition& position, const Groups& groups,
                                      const CheckpointSources& sources = {});

// Identities of the token files that the checkpoint's run trained on; empty if an earlier version
// saved the checkpoint.
std::vector<TokenFileIdentity> saved_data_identity(const CheckpointReader& reader);

// Loads all tensors and the step state into an allocated `state`; returns the position. InputError
// if a tensor is missing or does not have the shape that the model expects. fp8 scaling state may
// be missing: the next step then computes its scales as the first step of a run. With several sites
// OuterSync::begin() must follow. Site i continues site i mod n of n saved ones.
TrainPosition load_train_checkpoint(Ctx& ctx, CheckpointReader reader, TrainState& state);

// Loads parameters and router biases from `path`, a model found by find_model(); everything else
// starts as in a new run. adapter: PEFT directory of the initial adapters; empty: adapters that
// change nothing. begins: false if a checkpoint's adapters replace these next, so that initial DoRA
// magnitudes (row norms of the weights) are not needed. Logs each model key whose value differs
// from the run's. InputError if a weight is NaN or infinite.
void load_initial_weights(Ctx& ctx, const std::string& path, const std::string& adapter,
                          bool begins, TrainState& state);

// Configuration stored in a run's checkpoint, resolved for the number of ranks that wrote it.
RunConfig checkpoint_run_config(const CheckpointReader& reader);

}  // namespace trireme
