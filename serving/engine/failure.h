// Failure of a sequence or of the engine: a message for users, and a cause for code.
#pragma once

#include <exception>
#include <string>

namespace trireme {

enum class FailureCause {
  kOther,          // of a step or of the model
  kFault,          // CheckFailed: the message is for developers
  kLostRanks,      // Error(kLostRank)
  kStopping,       // Engine::stop()
  kWeightsChange,  // Handover::kAbort
  kAllForbidden,   // the request's own options forbid every next token
  kNoRuleMemory,   // for the schema, expression or grammar; the request may be retried
};

struct Failure {
  std::string why = {};
  FailureCause cause = FailureCause::kOther;

  bool empty() const { return why.empty(); }  // nothing has failed
};

Failure failure_of(const std::exception& error);

}  // namespace trireme
