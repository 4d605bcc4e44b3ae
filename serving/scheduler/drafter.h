// Interface of drafters. A drafter proposes draft tokens for a sequence; a later step verifies them
// (serving/scheduler/speculation.h).
#pragma once

#include <span>
#include <vector>

#include "serving/scheduler/sequence.h"

namespace trireme {

struct DraftRequest {
  const Sequence* sequence;  // running, with no sampled token in flight
  int64_t count;             // maximum number of draft tokens, at least one
};

// Called on one thread, between two steps.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Returns a draft for each request: 0 to `count` tokens that may follow the sequence.
  virtual std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests) = 0;
  // Releases the state of a sequence that no longer runs: it has ended, or is preempted.
  virtual void forget(const Sequence&) {}
};

// Prompt lookup: drafts from the sequence's own tokens (draft_from_text()).
class TextDrafter final : public Drafter {
 public:
  explicit TextDrafter(const SpeculationConfig& config) : config_(config) {}
  std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests) override;

 private:
  SpeculationConfig config_;
};

}  // namespace trireme
