// Pinned host memory in which messages of a GPU's tensors wait.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/context.h"

namespace trireme {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  struct Block {
    Buffer memory;
    cuda::Event copied;  // recorded after the last copy between it and the device; raw null: none
  };
  // A block of at least `bytes` whose last copy has run. It comes back when the last pointer to it
  // goes, in whatever thread.
  std::shared_ptr<Block> take(int64_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_;
};

}  // namespace trireme
