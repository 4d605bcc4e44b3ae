#include "training/data/examples/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/core/error.h"

namespace trireme {

Packing pack(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto length = [&](int64_t item) { return lengths[static_cast<size_t>(item)]; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<int64_t>> bins;
  std::map<int64_t, std::vector<size_t>> with_room;  // free capacity -> bins that have it
  for (const int64_t item : order) {
    const int64_t n = length(item);
    TRIREME_CHECK(n <= capacity, "an item of ", n, " tokens does not fit into a bin of ", capacity);
    const auto found = with_room.lower_bound(n);
    size_t bin = bins.size();
    int64_t room = capacity;
    if (found != with_room.end()) {
      room = found->first;
      bin = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) with_room.erase(found);
    } else {
      bins.emplace_back();
    }
    bins[bin].push_back(item);
    if (room > n) with_room[room - n].push_back(bin);
  }
  Packing out;
  out.items.reserve(lengths.size());
  for (const std::vector<int64_t>& bin : bins) {
    out.items.insert(out.items.end(), bin.begin(), bin.end());
    out.begin.push_back(std::ssize(out.items));
  }
  return out;
}

Packing one_each(int64_t items) {
  Packing out;
  for (int64_t i = 0; i < items; ++i) {
    out.items.push_back(i);
    out.begin.push_back(i + 1);
  }
  return out;
}

}  // namespace trireme
