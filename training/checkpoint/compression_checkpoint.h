// Residuals and compressor states of compressed gradients in a checkpoint.
//
// Kinds, for replica i of those that hold the parameters (SumLevels::outer):
//   residual.i          what the replica has not sent, in the parameters' shapes
//   residual.sum        what its owners have not sent of the sums, in the parameters' shapes
//   compressor.i, compressor.sum  states of the compressor that belong to these
// Loading into another number of replicas keeps the sum of the residuals: each replica gets an
// equal part of it. A run that compresses nothing drops them, with a warning.
#pragma once

#include "engine/io/sharded_checkpoint.h"
#include "training/step/train_step.h"

namespace trireme {

// Appends the parts that this rank writes.
void add_compression_parts(const TrainState& state, std::vector<CheckpointPart>& parts);

// Loads the allocated state of compression. A checkpoint without it, of a run whose sums were exact
// so far, leaves it as it is after allocation. InputError as for read_stored(), and if a residual
// is not finite.
void load_compression(Ctx& ctx, const CheckpointReader& reader, TrainState& state);

}  // namespace trireme
