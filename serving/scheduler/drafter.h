// Who guesses what follows texts, for a step to verify (serving/scheduler/speculation.h).
#pragma once

#include <span>
#include <vector>

#include "serving/scheduler/sequence.h"

namespace trireme {

struct DraftWish {
  const Sequence* sequence;  // it runs, and all of its tokens are known
  int64_t count;             // guesses at most, at least one
};

// On one thread, between two steps.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Of each wish what may follow its text, at most `count` tokens, maybe none.
  virtual std::vector<std::vector<int32_t>> guess(std::span<const DraftWish> wishes) = 0;
  // The sequence does not run any more: nothing is kept for it.
  virtual void forget(const Sequence&) {}
};

// Guesses from the texts themselves (guess_from_text()).
class TextDrafter final : public Drafter {
 public:
  explicit TextDrafter(const SpeculationConfig& config) : config_(config) {}
  std::vector<std::vector<int32_t>> guess(std::span<const DraftWish> wishes) override;

 private:
  SpeculationConfig config_;
};

}  // namespace trireme
