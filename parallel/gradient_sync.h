// Reduction of a step's gradients, in three sums: over the ranks that hold parts of one
// micro-batch's gradient (PartialSum), then over the ranks that hold the same parameters (Region),
// last over the pipeline stages that share a tensor.
//
// By ZeRO stage
//   0     every rank gets the whole sum, once per step, in buckets (GradientReducer);
//   1     each rank gets its shard of the sum, once per step, tile by tile (ParameterStore);
//   2, 3  the same after every micro-batch, added to the stored shard.
// Compressed (stages 0 and 1), CompressedGradientSum makes the second sum at the end of the step,
// with the last one between its two levels.
#pragma once

#include <array>

#include "engine/ops/context.h"
#include "parallel/gradient_reducer.h"
#include "parallel/groups.h"
#include "parallel/outer/compressed_gradient_sum.h"

namespace trireme {

class GradientSync {
 public:
  using Options = GradientReducer::Options;  // stages above 0: a tile is the bucket
  // compressed: sum of the store's gradients; nullptr: all sums are exact. All arguments must
  // outlive this object.
  GradientSync(const Groups& groups, ParameterStore& store, Ctx& ctx, const Options& options,
               CompressedGradientSum* compressed = nullptr);
  ~GradientSync();  // waits for reductions in progress
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Call when the backward of a micro-batch has completed block number `block` of the store, for
  // each block and micro-batch, in the same order on all ranks that hold the same blocks, also in a
  // planning run. last: true for the step's last micro-batch. With Options::overlap, the reduction
  // overlaps with what follows.
  void block_done(int block, bool last);
  // Ends a step: starts the remaining reductions, waits for all, and sums the tensors that pipeline
  // stages share. Adds the waiting time to TimeCategory::kCommunication. loss:
  // CompressedGradientSum::finish().
  void finish(const ConstTensor& loss);

  // Time that the caller waited for reductions in the last finished step.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  struct Pending {
    int block = -1;
    WholeStoreBlock whole;  // stages 2 and 3
    std::vector<Work> work;
  };
  void add_parts(int block);
  void add_tied_stages(const ShardMap& reduced);
  bool compresses() const { return compressed_ != nullptr && compressed_->is_active(); }
  void sum_exactly(int block);
  void finish_exactly();
  GradientReducer& reducer(Region region);
  void scatter(int block);
  void finish_reduction(Pending& pending);
  int position(int block) const { return store_.blocks() - 1 - block; }
  const Groups& groups_;
  ParameterStore& store_;
  Ctx& ctx_;
  Options options_;
  CompressedGradientSum* compressed_;
  std::array<std::unique_ptr<GradientReducer>, kRegions> reducers_;  // stage 0
  std::vector<Pending> pending_;   // reductions in progress, oldest first
  std::vector<bool> accumulated_;  // stages 2 and 3: blocks whose shard holds a sum already
  double waiting_seconds_ = 0;
  double exposed_seconds_ = 0;
};

}  // namespace trireme
