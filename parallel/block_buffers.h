// Whole parameter blocks in the memory of a step, for as long as someone needs them: gathered
// values, and gradients that are not reduced yet, where a rank keeps only its shard of them.
#pragma once

#include <vector>

#include "engine/core/memory.h"
#include "parallel/shard_map.h"

namespace trireme {

// Flat ranges in the arena; destroying it gives them back.
class WholeBlock {
 public:
  bool present() const { return !pieces_.empty(); }
  // (n), a part of one of the ranges. In a planning run the address is fake.
  Tensor view(const FlatRange& part) const;

 private:
  friend class BlockBuffers;
  struct Piece {
    FlatRange flat;
    Activation memory;
  };
  std::vector<Piece> pieces_;
};

class BlockBuffers {
 public:
  // name: of the allocations.
  BlockBuffers(const char* name, DType dtype, int blocks);

  bool holds(int block) const { return blocks_[static_cast<size_t>(block)].present(); }
  // Memory for these flat ranges, contents undefined; `block` must not be held.
  void open(Arena& arena, int block, const std::vector<FlatRange>& ranges);
  void close(int block) { take(block); }
  // The block changes hands: it is not held any more.
  WholeBlock take(int block);
  Tensor view(int block, const FlatRange& part) const;  // of a held block

 private:
  const char* name_;
  DType dtype_;
  std::vector<WholeBlock> blocks_;
};

}  // namespace trireme
