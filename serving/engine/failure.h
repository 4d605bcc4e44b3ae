// Failure of a sequence or of the engine: a text for people, and a cause for code that decides.
#pragma once

#include <exception>
#include <string>

namespace trireme {

enum class FailureCause {
  kOther,          // of a step or of the model
  kFault,          // CheckFailed: the text is for the program's authors
  kLostRanks,      // Error(kLostRank)
  kStopping,       // Engine::stop()
  kWeightsChange,  // Handover::kAbort
  kAllForbidden,   // the sequence's own request forbids every token that could follow
  kNoRuleMemory,   // of the schema, expression or grammar; the request may be repeated
};

struct Failure {
  std::string why = {};
  FailureCause cause = FailureCause::kOther;

  bool empty() const { return why.empty(); }  // nothing has failed
};

Failure failure_of(const std::exception& error);

}  // namespace trireme
