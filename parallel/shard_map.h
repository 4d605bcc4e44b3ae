// Which elements of a flat range one rank holds, and where: pieces of it, stored one behind the
// other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme {

struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class ShardMap {
 public:
  ShardMap() = default;
  // Disjoint, in ascending order; empty ones hold nothing.
  explicit ShardMap(const std::vector<FlatRange>& pieces);

  int64_t size() const { return size_; }  // elements held
  // Where a held element is stored. A part of one piece lies without gaps.
  int64_t offset(int64_t flat) const;
  int64_t flat(int64_t offset) const;  // the reverse

  // f(part, offset) for everything that is held of `range`, in ascending order: `part` a flat range
  // inside one piece, `offset` where it is stored.
  template <class F>
  void for_each(const FlatRange& range, F&& f) const {
    for (size_t i = first_after(range.begin); i < pieces_.size(); ++i) {
      const Stored& piece = pieces_[i];
      if (piece.flat.begin >= range.end) return;
      const FlatRange part{std::max(range.begin, piece.flat.begin),
                           std::min(range.end, piece.flat.end)};
      f(part, piece.offset + (part.begin - piece.flat.begin));
    }
  }

 private:
  struct Stored {
    FlatRange flat;
    int64_t offset;
  };
  size_t first_after(int64_t flat) const;  // the first piece that ends after it
  std::vector<Stored> pieces_;
  int64_t size_ = 0;
};

}  // namespace trireme
