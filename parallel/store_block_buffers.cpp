#include "parallel/store_block_buffers.h"

#include <utility>

namespace trireme {

Tensor WholeStoreBlock::view(const FlatRange& part) const {
  for (const Piece& piece : pieces_)
    if (part.begin >= piece.flat.begin && part.end <= piece.flat.end)
      return piece.memory->slice(0, part.begin - piece.flat.begin, part.end - piece.flat.begin);
  TRIREME_UNREACHABLE("flat range [", part.begin, ", ", part.end, ") is not in this block");
}

StoreBlockBuffers::StoreBlockBuffers(const char* name, DType dtype, int blocks)
    : name_(name), dtype_(dtype), blocks_(static_cast<size_t>(blocks)) {}

void StoreBlockBuffers::open(Arena& arena, int block, const std::vector<FlatRange>& ranges) {
  TRIREME_CHECK(!holds(block), name_, " of block ", block, " are held already");
  for (const FlatRange& range : ranges) {
    if (range.size() == 0) continue;
    blocks_[static_cast<size_t>(block)].pieces_.push_back(
        {range, arena.allocate(name_, dtype_, Shape{range.size()})});
  }
}

WholeStoreBlock StoreBlockBuffers::take(int block) {
  return std::exchange(blocks_[static_cast<size_t>(block)], WholeStoreBlock());
}

Tensor StoreBlockBuffers::view(int block, const FlatRange& part) const {
  TRIREME_CHECK(holds(block), name_, " of block ", block, " are not held");
  return blocks_[static_cast<size_t>(block)].view(part);
}

}  // namespace trireme
