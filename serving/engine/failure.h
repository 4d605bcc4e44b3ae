// Failure of a sequence or of the engine: a message for users, and a cause that code can check.
#pragma once

#include <exception>
#include <string>

namespace trireme {

enum class FailureCause {
  kOther,          // any other: a step failed or ran out of memory, or its logits are not finite
  kFault,          // CheckFailed, an internal error: the message is for developers
  kLostRanks,      // Error with ExitCode::kLostRank, or Engine::interrupt()
  kStopping,       // Engine::stop()
  kWeightsChange,  // Handover::kAbort
  kAllForbidden,   // the request's own options forbid every next token
  kNoRuleMemory,   // out of memory for the grammar; the request may be retried
};

struct Failure {
  std::string why = {};
  FailureCause cause = FailureCause::kOther;

  bool empty() const { return why.empty(); }  // true: nothing has failed
};

// Message of an exception; cause kFault, kLostRanks or kOther.
Failure failure_of(const std::exception& error);

}  // namespace trireme
