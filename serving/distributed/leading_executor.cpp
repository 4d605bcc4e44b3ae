#include "serving/distributed/leading_executor.h"

#include <chrono>

#include "serving/distributed/plan_codec.h"

namespace trireme {

LeadingExecutor::~LeadingExecutor() { followers_.end(); }

StepOutput LeadingExecutor::execute(const SchedulerOutput& plan) {
  const auto begin = std::chrono::steady_clock::now();
  followers_.send(MessageKind::kPlan, plan.number, encode_plan(plan));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  plan_send_seconds_ = elapsed.count();
  return own_->execute(plan);
}

}  // namespace trireme
