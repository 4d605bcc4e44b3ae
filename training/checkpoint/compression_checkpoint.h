// Residuals and compressor states of compressed exchanges in a checkpoint: of gradients, and of the
// updates of sites.
//
// Kinds, for rank i of those that exchange (of gradients: of the replicas that hold the parameters,
// SumLevels::outer; of updates: site i), after a prefix:
//   residual.i          what the rank has not sent, in the parameters' shapes
//   residual.sum        what its owners have not sent of the sums, in the parameters' shapes
//   compressor.i, compressor.sum  states of the compressor that belong to these
// Loading into another number of ranks keeps the sum of the residuals: each rank gets an equal part
// of it. A run that compresses nothing drops them, with a warning. A site that is a job of its own
// saves those of its own number only; the hub, which has the others, saves nothing.
#pragma once

#include <string>

#include "engine/io/sharded_checkpoint.h"
#include "training/step/train_step.h"

namespace trireme {

// Number of ranks that exchange in a run, and of the one that loads a checkpoint.
struct ExchangeRank {
  GroupCoord coord;
  bool has_hub = false;  // which encodes the sums and starts with a residual of zero
};

// Appends the parts of one exchange that rank number `rank` writes.
void add_exchange_parts(const ParameterStore& store, const CompressionState& state,
                        const std::string& prefix, int rank, std::vector<CheckpointPart>& parts);
// Loads them. With a hub each rank also gets an equal part of the residual of the sums. From a
// checkpoint of one rank alone the residual of the sums is zero, and with a hub other ranks than
// that one start with a residual of zero. A checkpoint without parts, of a run whose sums were
// exact so far, leaves the state as it is after allocation. InputError as for read_stored(), and if
// a residual is not finite.
void load_exchange(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                   const CompressionState& state, const std::string& prefix,
                   const ExchangeRank& rank);

// The same for the gradients of all regions, without prefix.
void add_compression_parts(const TrainState& state, std::vector<CheckpointPart>& parts);
void load_compression(Ctx& ctx, const CheckpointReader& reader, TrainState& state);

}  // namespace trireme
