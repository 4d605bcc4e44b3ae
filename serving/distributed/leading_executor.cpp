#include "serving/distributed/leading_executor.h"

#include "serving/distributed/plan_codec.h"

namespace trireme {

LeadingExecutor::LeadingExecutor(std::unique_ptr<StepExecutor> own,
                                 std::vector<std::unique_ptr<SideChannel>> followers)
    : own_(std::move(own)), followers_(std::move(followers)) {}

LeadingExecutor::~LeadingExecutor() {
  for (const auto& follower : followers_) {
    try {
      follower->send(MessageKind::kEnd, 0);
    } catch (const Error&) {  // it has gone already
    }
  }
}

StepOutcome LeadingExecutor::execute(const StepPlan& plan) {
  const std::vector<std::byte> bytes = encode_plan(plan);
  for (const auto& follower : followers_) follower->send(MessageKind::kPlan, plan.number, bytes);
  return own_->execute(plan);
}

}  // namespace trireme
