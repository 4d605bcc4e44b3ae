#include "serving/engine/guarded_drafter.h"

#include "engine/observe/log.h"

namespace trireme {

std::vector<std::vector<int32_t>> GuardedDrafter::propose(std::span<const DraftRequest> requests) {
  std::unique_lock<std::mutex> lock;
  if (turn_ != nullptr) lock = std::unique_lock(*turn_);
  try {
    if (drafter_ != nullptr) return drafter_->propose(requests);
  } catch (const std::exception& error) {
    log_warning("disabling speculative decoding, because drafting failed: ", error.what());
    drafter_.reset();
  }
  return std::vector<std::vector<int32_t>>(requests.size());
}

void GuardedDrafter::forget(const Sequence& sequence) {
  if (drafter_ != nullptr) drafter_->forget(sequence);
}

}  // namespace trireme
