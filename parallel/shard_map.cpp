#include "parallel/shard_map.h"

#include <iterator>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {

ShardMap::ShardMap(const std::vector<FlatRange>& pieces) {
  for (const FlatRange& piece : pieces) {
    if (piece.size() == 0) continue;
    TRIREME_CHECK(piece.size() > 0 && (pieces_.empty() || piece.begin >= pieces_.back().flat.end),
                  "piece [", piece.begin, ", ", piece.end, ") overlaps one before it");
    pieces_.push_back({piece, size_});
    size_ += piece.size();
  }
}

size_t ShardMap::first_after(int64_t flat) const {
  const auto at = std::ranges::upper_bound(pieces_, flat, {},
                                           [](const Stored& piece) { return piece.flat.end; });
  return static_cast<size_t>(at - pieces_.begin());
}

int64_t ShardMap::offset(int64_t flat) const {
  const size_t i = first_after(flat);
  TRIREME_CHECK(i < pieces_.size() && pieces_[i].flat.begin <= flat, "flat element ", flat,
                " is held by another rank");
  return pieces_[i].offset + (flat - pieces_[i].flat.begin);
}

int64_t ShardMap::flat(int64_t offset) const {
  TRIREME_CHECK(offset >= 0 && offset < size_, "element ", offset, " is outside a shard of ",
                size_);
  const auto after = std::ranges::upper_bound(pieces_, offset, {}, &Stored::offset);
  const Stored& piece = *std::prev(after);
  return piece.flat.begin + (offset - piece.offset);
}

}  // namespace trireme
