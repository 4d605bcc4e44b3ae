// Reduction of a step's gradients, in three sums: over the ranks that hold parts of one
// micro-batch's gradient (PartialSum), then over the ranks that hold the same parameters (Region),
// last over the pipeline stages that share a tensor. With compression the last sum comes between
// those over the ranks of a replica and over the replicas (parallel/outer/sum_levels.h).
//
// By ZeRO stage
//   0     every rank gets the whole sum, once per step, in buckets (GradientReducer);
//   1     each rank gets its shard of the sum, once per step, tile by tile (ParameterStore);
//   2, 3  the same after every micro-batch, added to the stored shard.
// Compressed (stages 0 and 1), every rank gets the whole sum at the end of the step
// (CompressedAllReduce), so that both stages have the same numbers.
#pragma once

#include <functional>

#include "engine/ops/context.h"
#include "parallel/gradient_reducer.h"
#include "parallel/groups.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/gradient_compression.h"

namespace trireme {

class GradientSync {
 public:
  using Options = GradientReducer::Options;  // stages above 0: a tile is the bucket
  // compression: of the store's gradients; nullptr: their sums are exact. Collective with
  // compression. All arguments must outlive this object.
  GradientSync(const Groups& groups, ParameterStore& store, Ctx& ctx, const Options& options,
               GradientCompression* compression = nullptr);
  ~GradientSync();  // waits for reductions in progress
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Call when the backward of a micro-batch has completed block number `block` of the store, for
  // each block and micro-batch, in the same order on all ranks that hold the same blocks, also in a
  // planning run. last: true for the step's last micro-batch. With Options::overlap, the reduction
  // overlaps with what follows.
  void block_done(int block, bool last);
  // Ends a step: starts the remaining reductions, waits for all, and sums the tensors that pipeline
  // stages share. Adds the waiting time to TimeCategory::kCommunication.
  //
  // With compression: gradients are summed exactly if the norm of those of one rank and of its
  // `loss` (1) is above 1e15 or not finite, so that a step that will be skipped changes no residual
  // and all ranks see what is not finite. On a GPU the host waits for this norm.
  void finish(const ConstTensor& loss);

  // Compressed steps exchange the first moment of an optimizer, m = beta m + (1 - beta) g with
  // beta = GradientCompression::moment_beta() > 0, in place of g: ranks encode
  // g + beta / (1 - beta) m / replicas, and what they get is g such that the new m is the decoded
  // sum times 1 - beta (1-bit Adam, Tang et al. 2021). m changes slowly, so that what a step leaves
  // out is sent soon, but this g has the error of m times 1 / (1 - beta), so that its norm says
  // nothing about the gradients. clip: maximum of the root mean square of the replicas' gradient
  // norms, to which gradients are scaled before they are encoded; 0: none. moment(): the whole
  // moment, in the dtype of gradients, laid out as gradients. Call before the first planning run;
  // ZeRO stage 0, no experts.
  void send_moments(std::function<ConstTensor()> moment, double clip);
  // Whether the last step's gradients have been exchanged in this way.
  bool sent_moments() const { return sent_moments_; }

  // Time that the caller waited for reductions in the last finished step.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  struct Pending {
    int block = -1;
    WholeStoreBlock whole;  // stages 2 and 3
    std::vector<Work> work;
  };
  struct CompressedSum {
    CompressedSum(Communicator& ranks, Region region, GradientCompression::RegionSum& its, Ctx& ctx)
        : sum(its), groups(ranks, region, its.levels), all_reduce(*groups.outer, its.state, ctx) {}
    const GradientCompression::RegionSum& sum;
    SumGroups groups;
    CompressedAllReduce all_reduce;
  };
  void add_parts(int block);
  void add_tied_stages(const ShardMap& reduced);
  bool compresses() const;
  bool may_encode(const ConstTensor& loss);
  void sum_over(std::unique_ptr<Communicator> SumGroups::*level);
  void sum_compressed();
  void sum_moments();
  void clip_replicas();
  void add_moment(const CompressedSum& its, double factor);
  void share_in_replicas();
  void sum_exactly(int block);
  void finish_exactly();
  void finish_compressed(const ConstTensor& loss);
  Tensor gradients() const;
  GradientReducer& reducer(Region region);
  void scatter(int block);
  void finish_reduction(Pending& pending);
  int position(int block) const { return store_.blocks() - 1 - block; }
  const Groups& groups_;
  ParameterStore& store_;
  Ctx& ctx_;
  Options options_;
  GradientCompression* compression_;
  std::array<std::unique_ptr<GradientReducer>, kRegions> reducers_;  // stage 0
  // With compression, by region; null where its parameters are on one rank.
  std::array<std::unique_ptr<CompressedSum>, kRegions> compressed_;
  std::vector<Pending> pending_;         // reductions in progress, oldest first
  std::vector<bool> accumulated_;        // stages 2 and 3: blocks whose shard holds a sum already
  std::function<ConstTensor()> moment_;  // empty: gradients are exchanged
  double clip_ = 0;
  bool sent_moments_ = false;
  double waiting_seconds_ = 0;
  double exposed_seconds_ = 0;
};

}  // namespace trireme
