// Drafter whose failure ends speculation but no request, since no output depends on drafts.
#pragma once

#include <memory>
#include <mutex>

#include "serving/scheduler/drafter.h"

namespace trireme {

// Forwards to another drafter. When that throws, logs a warning, destroys it, and returns empty
// drafts from then on.
class GuardedDrafter final : public Drafter {
 public:
  // turn: locked while drafting, by all drafters that share a device; may be nullptr.
  GuardedDrafter(std::unique_ptr<Drafter> drafter, std::shared_ptr<std::mutex> turn)
      : drafter_(std::move(drafter)), turn_(std::move(turn)) {}

  std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests) override;
  void forget(const Sequence& sequence) override;

 private:
  std::unique_ptr<Drafter> drafter_;  // nullptr: it has failed
  std::shared_ptr<std::mutex> turn_;
};

}  // namespace trireme
