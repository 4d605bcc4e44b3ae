#include "serving/distributed/leading_executor.h"

#include "serving/distributed/plan_codec.h"

namespace trireme {

LeadingExecutor::~LeadingExecutor() { followers_.end(); }

StepOutcome LeadingExecutor::execute(const StepPlan& plan) {
  followers_.send(MessageKind::kPlan, plan.number, encode_plan(plan));
  return own_->execute(plan);
}

}  // namespace trireme
