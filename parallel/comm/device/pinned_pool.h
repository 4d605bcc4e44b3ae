// Pool of pinned host memory for staged messages of GPU tensors.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/context.h"

namespace trireme {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  struct PinnedBlock {
    Buffer memory;
    cuda::Event copied;  // after the last copy to or from the device; raw null: none
  };
  // Returns a block of at least `bytes` whose last copy has completed. It returns to the pool when
  // its last pointer is destroyed, in any thread.
  std::shared_ptr<PinnedBlock> take(int64_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PinnedBlock>> free_;
};

}  // namespace trireme
