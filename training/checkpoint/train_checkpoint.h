// Checkpoint of a training run: parameters, optimizer state, step state, data position,
// configuration. The file format is engine/io/sharded_checkpoint.h.
#pragma once

#include "engine/io/sharded_checkpoint.h"
#include "parallel/comm/communicator.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"
#include "training/step/train_step.h"

namespace trireme {

struct CheckpointLineage;

struct TrainPosition {
  int64_t step = 0;              // optimizer steps done, including skipped ones
  int64_t consumed_samples = 0;  // sequences taken from the training data
  // Consecutive non-finite steps up to this one that were skipped, except those explained by a
  // dynamic loss scale.
  int64_t skipped_row = 0;
};

// Lineage and data of a run, stored in its checkpoints.
struct CheckpointSources {
  const CheckpointLineage* lineage = nullptr;
  const std::vector<TokenFileIdentity>* data = nullptr;
};

// Saves a checkpoint. Collective: every rank writes its share of the tensors. With adapters, frozen
// weights are not written; they are those of checkpoint.load. InputError on all ranks if one fails
// (full disk); no partial checkpoint remains and older ones are kept. sources: on rank 0.
SavedCheckpoint save_train_checkpoint(Ctx& ctx, const RunConfig& config, const TrainState& state,
                                      const TrainPosition& position, const Groups& groups,
                                      const CheckpointSources& sources = {});

// Token files on which the checkpoint's run was trained; empty if an earlier version saved it.
std::vector<TokenFileIdentity> saved_data_identity(const CheckpointReader& reader);

// Loads everything into an allocated state. InputError if the checkpoint's tensors do not fit the
// model of `config`.
TrainPosition load_train_checkpoint(Ctx& ctx, const CheckpointReader& reader, TrainState& state);

// Loads parameters and router biases from a model found by find_model(); everything else as in a
// new run. Adapters come from the PEFT directory `adapter`; empty: adapters without effect. begins:
// these adapters are used. If a checkpoint is loaded over them next, the row norms of the weights
// need not be computed. Logs where the configuration of the run differs from the model's.
void load_initial_weights(Ctx& ctx, const std::string& path, const std::string& adapter,
                          bool begins, TrainState& state);

// Configuration stored in a run's checkpoint, resolved for the number of ranks that wrote it.
RunConfig checkpoint_run_config(const CheckpointReader& reader);

}  // namespace trireme
