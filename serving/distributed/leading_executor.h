// The executor of rank 0 where the scheduler lives beside it, in one of the ranks of `mpirun ... trireme serve`:
// sends each plan to the others, and takes part in computing it.
#pragma once

#include <memory>
#include <vector>

#include "serving/distributed/side_channel.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

class LeadingExecutor final : public StepExecutor {
 public:
  // own: this rank's part. followers: those of all other ranks, which call follow_plans().
  LeadingExecutor(std::unique_ptr<StepExecutor> own,
                  std::vector<std::unique_ptr<SideChannel>> followers);
  ~LeadingExecutor() override;  // the others' follow_plans() return

  // Error(kLostRank) when one of the others has gone: nothing can be computed from then on.
  StepOutcome execute(const StepPlan& plan) override;

 private:
  std::unique_ptr<StepExecutor> own_;
  std::vector<std::unique_ptr<SideChannel>> followers_;
};

}  // namespace trireme
