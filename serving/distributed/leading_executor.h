// Step executor of rank 0 when the scheduler runs in the same process (`mpirun ... trireme serve`).
// Sends each plan to the other ranks and computes its own part of it.
#pragma once

#include <memory>

#include "serving/distributed/rank_weights.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

class LeadingExecutor final : public StepExecutor {
 public:
  // own: executor of this rank's part. followers: must outlive this object.
  LeadingExecutor(std::unique_ptr<StepExecutor> own, Followers& followers)
      : own_(std::move(own)), followers_(followers) {}
  ~LeadingExecutor() override;  // ends follow_plans() on the other ranks

  // Error(kLostRank) when another rank has closed its channel or reads nothing from it
  // (ControlChannel::send()); no step can be computed after that.
  StepOutput execute(const SchedulerOutput& plan) override;
  double plan_send_seconds() const override { return plan_send_seconds_; }

 private:
  std::unique_ptr<StepExecutor> own_;
  Followers& followers_;
  double plan_send_seconds_ = 0;
};

}  // namespace trireme
