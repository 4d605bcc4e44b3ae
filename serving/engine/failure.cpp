#include "serving/engine/failure.h"

#include "engine/core/error.h"

namespace trireme {

Failure failure_of(const std::exception& error) {
  FailureCause cause = FailureCause::kOther;
  if (dynamic_cast<const CheckFailed*>(&error) != nullptr) cause = FailureCause::kFault;
  const auto* const coded = dynamic_cast<const Error*>(&error);
  if (coded != nullptr && coded->code() == ExitCode::kLostRank) cause = FailureCause::kLostRanks;
  return {error.what(), cause};
}

}  // namespace trireme
