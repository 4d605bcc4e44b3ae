// Makes the gradients of a step whole: what each rank computed is first added where ranks hold parts of
// one micro-batch's gradient (PartialSum), then summed over the ranks with other micro-batches (Region).
#pragma once

#include "parallel/gradient_reducer.h"
#include "parallel/groups.h"

namespace trireme {

class GradientSync {
 public:
  using Options = GradientReducer::Options;
  // The store's gradients must be allocated; store and groups must outlive this object.
  GradientSync(const Groups& groups, ParameterStore& store, const Options& options);

  // Block `block` of the store holds its final local gradient. Call once per step for each, in the
  // same order on all ranks that hold the same blocks. Reduction starts where it can overlap.
  void block_ready(int block);
  // Starts what is left and waits for all. The caller's waiting is added to kCommunication.
  void wait_all(Profile* profile);

  double exposed_seconds() const;  // the caller's waiting in the last step

 private:
  void add_parts(int block);
  bool waits_for_other_stage(int block) const;
  int position(int block) const;
  const Groups& groups_;
  ParameterStore& store_;
  std::vector<std::unique_ptr<GradientReducer>>
      reducers_;           // by Region; null where it has no ranges
  std::vector<int> late_;  // blocks whose sum over stages waits for the end of the step
  double exposed_seconds_ = 0;
};

}  // namespace trireme
