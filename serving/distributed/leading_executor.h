// The executor of rank 0 where the scheduler lives beside it, in one of the ranks of `mpirun ...
// trireme serve`:
// sends each plan to the others, and takes part in computing it.
#pragma once

#include <memory>

#include "serving/distributed/rank_weights.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

class LeadingExecutor final : public StepExecutor {
 public:
  // own: this rank's part. followers: outlive this object.
  LeadingExecutor(std::unique_ptr<StepExecutor> own, Followers& followers)
      : own_(std::move(own)), followers_(followers) {}
  ~LeadingExecutor() override;  // the others' follow_plans() return

  // Error(kLostRank) when one of the others has gone: nothing can be computed from then on.
  StepOutcome execute(const StepPlan& plan) override;
  double tell_seconds() const override { return tell_seconds_; }

 private:
  std::unique_ptr<StepExecutor> own_;
  Followers& followers_;
  double tell_seconds_ = 0;
};

}  // namespace trireme
