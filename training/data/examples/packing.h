// Packing of examples into sequences by best fit decreasing, as TRL's "bfd".
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Bins of items: bin b has items[begin[b]] .. items[begin[b + 1] - 1].
struct Packing {
  std::vector<int64_t> items;
  std::vector<int64_t> begin{0};  // (bins + 1)
  int64_t bins() const { return static_cast<int64_t>(begin.size()) - 1; }
};

// Packs items, numbered as in `lengths`, in order of decreasing length (ties: in list order), each
// into the fullest bin that has room for it. The result depends on the lengths only. No length may
// exceed `capacity`.
Packing pack(const std::vector<int64_t>& lengths, int64_t capacity);

// One item per bin, in order.
Packing one_each(int64_t items);

}  // namespace trireme
