// Map from a flat range to one rank's stored pieces of it, which are stored one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme {

// Elements [begin, end) of a flat array.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class ShardMap {
 public:
  ShardMap() = default;
  // Pieces: disjoint, in ascending order; empty ones hold nothing.
  explicit ShardMap(const std::vector<FlatRange>& pieces);

  int64_t size() const { return size_; }  // stored elements
  // Storage offset, in elements, of a flat element, which must be stored here. Any part of one
  // piece is contiguous in storage.
  int64_t offset(int64_t flat) const;
  int64_t flat(int64_t offset) const;  // inverse of offset(), for 0 <= offset < size()

  // Calls f(part, offset) for each stored part of `range`, in ascending order. part: flat range
  // inside one piece; offset: its storage offset.
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
  size_t first_after(int64_t flat) const;  // first piece that ends after `flat`
  std::vector<Stored> pieces_;
  int64_t size_ = 0;
};

}  // namespace trireme
