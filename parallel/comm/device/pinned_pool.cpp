#include "parallel/comm/device/pinned_pool.h"

#include <algorithm>

namespace trireme {

std::shared_ptr<PinnedPool::PinnedBlock> PinnedPool::take(int64_t bytes) {
  std::unique_ptr<PinnedBlock> block;
  {
    const std::lock_guard lock(mutex_);
    // Takes the smallest block that is large enough, so that few sizes need few blocks.
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const bool fits = (*it)->memory.bytes() >= bytes;
      const bool better = best == free_.end() || (*it)->memory.bytes() < (*best)->memory.bytes();
      const bool idle =
          fits && better && ((*it)->copied.raw() == nullptr || cuda::done((*it)->copied));
      if (idle) best = it;
    }
    if (best != free_.end()) {
      block = std::move(*best);
      free_.erase(best);
    }
  }
  if (!block) {
    block = std::make_unique<PinnedBlock>();
    block->memory = Buffer("pinned messages", std::max<int64_t>(bytes, 1), Memory::kPinned);
  }
  return {block.release(), [pool = shared_from_this()](PinnedBlock* back) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.emplace_back(back);
          }};
}

}  // namespace trireme
