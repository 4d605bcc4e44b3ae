// Whole parameter blocks in the step's arena, for as long as they are needed: gathered values, and
// gradients not reduced yet, on ranks that keep only a shard of them.
#pragma once

#include <vector>

#include "engine/core/memory.h"
#include "parallel/shard_map.h"

namespace trireme {

// Flat ranges allocated in the arena; the destructor frees them.
class WholeStoreBlock {
 public:
  bool present() const { return !pieces_.empty(); }
  // View (n) of a part of one range. In a planning run the address is fake.
  Tensor view(const FlatRange& part) const;

 private:
  friend class StoreBlockBuffers;
  struct Piece {
    FlatRange flat;
    Activation memory;
  };
  std::vector<Piece> pieces_;
};

class StoreBlockBuffers {
 public:
  // name: label of the allocations.
  StoreBlockBuffers(const char* name, DType dtype, int blocks);

  bool holds(int block) const { return blocks_[static_cast<size_t>(block)].present(); }
  // Allocates these flat ranges, contents undefined; `block` must not be held.
  void open(Arena& arena, int block, const std::vector<FlatRange>& ranges);
  void close(int block) { take(block); }
  // Moves the block's memory to the caller; the block is then no longer held.
  WholeStoreBlock take(int block);
  Tensor view(int block, const FlatRange& part) const;  // `block` must be held

 private:
  const char* name_;
  DType dtype_;
  std::vector<WholeStoreBlock> blocks_;
};

}  // namespace trireme
