// A drafter that may fail without harm: no text depends on guesses.
#pragma once

#include <memory>
#include <mutex>

#include "serving/scheduler/drafter.h"

namespace trireme {

// Guesses what the other one does, until that throws: then it says so in the log, and from then on
// guesses nothing.
class GuardedDrafter final : public Drafter {
 public:
  // turn: held while it guesses, by those who share a device; may be absent.
  GuardedDrafter(std::unique_ptr<Drafter> drafter, std::shared_ptr<std::mutex> turn)
      : drafter_(std::move(drafter)), turn_(std::move(turn)) {}

  std::vector<std::vector<int32_t>> guess(std::span<const DraftWish> wishes) override;
  void forget(const Sequence& sequence) override;

 private:
  std::unique_ptr<Drafter> drafter_;  // absent: it has failed
  std::shared_ptr<std::mutex> turn_;
};

}  // namespace trireme
