// Makes the gradients of a step whole: what each rank computed is first added where ranks hold
// parts of one micro-batch's gradient (PartialSum), then summed over the ranks with other
// micro-batches (Region), and last over the pipeline stages that share a tensor.
//
// With ZeRO stage
//   0     the sum is made on every rank, once a step, in buckets (GradientReducer);
//   1     each rank receives its shard of the sum, once a step, tile by tile (ParameterStore);
//   2, 3  the same after every micro-batch, added to the shard that is stored.
#pragma once

#include "engine/ops/context.h"
#include "parallel/gradient_reducer.h"
#include "parallel/groups.h"

namespace trireme {

class GradientSync {
 public:
  using Options = GradientReducer::Options;  // stages above 0 have no buckets: a tile is one
  // Store, groups and ctx must outlive this object.
  GradientSync(const Groups& groups, ParameterStore& store, Ctx& ctx, const Options& options);
  ~GradientSync();  // waits for reductions under way
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Block `block` of the store holds its gradient of a micro-batch, `last`: the final one of this
  // step. Called for each block and micro-batch, in the same order on all ranks that hold the same
  // blocks; in a planning run too. Reduction starts where it can overlap.
  void block_done(int block, bool last);
  // Starts what is left and waits for all. The caller's waiting is added to kCommunication.
  void finish();

  double exposed_seconds() const { return exposed_seconds_; }  // caller's waiting in the last step

 private:
  struct Pending {
    int block = -1;
    WholeBlock whole;  // stages 2 and 3
    std::vector<Work> work;
  };
  void add_parts(int block);
  void add_tied_stages();
  GradientReducer& reducer(Region region);
  void scatter(int block);
  void settle(Pending& pending);
  int position(int block) const { return store_.blocks() - 1 - block; }
  const Groups& groups_;
  ParameterStore& store_;
  Ctx& ctx_;
  Options options_;
  std::array<std::unique_ptr<GradientReducer>, kRegions> reducers_;  // stage 0
  std::vector<Pending> pending_;   // reductions under way, oldest first
  std::vector<bool> accumulated_;  // stages 2 and 3: blocks whose shard holds something
  double waiting_seconds_ = 0;
  double exposed_seconds_ = 0;
};

}  // namespace trireme
