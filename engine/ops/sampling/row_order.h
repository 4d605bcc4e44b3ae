// Order of a row's tokens, walked from the first one without sorting the row. Tokens are
// distributed over bins of similar keys (OrderedRow), whose totals determine the bin in which a
// walk stops. Only that bin is divided again, or sorted if it has few tokens or equal keys; all
// other work is O(V), V the number of tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trireme {

struct BinTotal {
  double weight = 0;  // sum over the bin's tokens
  int64_t count = 0;  // number of tokens
};

// Bins of equal width from `low` to `high`; the last one has no upper end. Keys must not be below
// `low`.
class KeyBins {
 public:
  KeyBins(size_t count, double low, double high)
      : count_(count), low_(low), per_unit_(static_cast<double>(count) / (high - low)) {
    if (!divides()) per_unit_ = 0;
  }
  // Returns whether `low` and `high` are in different bins. If not, finite keys are in bin 0, whose
  // end() is infinity.
  bool divides() const { return per_unit_ > 0 && per_unit_ < 1e300; }
  // Returns the number of bins per unit of key, 0 if !divides().
  double per_unit() const { return per_unit_; }
  // Returns the bin of a key.
  size_t of(double key) const {
    const double at = (key - low_) * per_unit_;
    return at < static_cast<double>(count_) ? static_cast<size_t>(at) : count_ - 1;
  }
  // Returns an upper bound of the bin's keys, with a margin for rounding; infinity for the last.
  double end(size_t bin) const {
    if (bin + 1 == count_ || !divides()) return std::numeric_limits<double>::infinity();
    return low_ + static_cast<double>(bin + 1) / per_unit_ * (1 + 1e-9);
  }

 private:
  size_t count_;
  double low_, per_unit_;
};

struct RowOrderScratch {
  static constexpr size_t kBins = 1024;
  std::vector<uint16_t> bin;     // of each token; kBins if it is skipped
  std::vector<BinTotal> totals;  // of each bin; the last one: of the skipped tokens
};

// Logits l and weights (V) of a row. Tokens are ordered by their keys |largest - l - centre|, ties
// by descending logits, then by ascending ids; with centre 0 by descending logits. Tokens of weight
// zero are skipped.
struct OrderedRow {
  std::span<const float> logits;
  std::span<double> weights;
  double largest, centre = 0;  // largest: the largest logit

  double key(int32_t id) const {
    return std::abs(largest - static_cast<double>(logits[static_cast<size_t>(id)]) - centre);
  }
  double weight(int32_t id) const { return weights[static_cast<size_t>(id)]; }
};

// Order of one row. Constructing another over the same scratch invalidates it.
class RowOrder {
 public:
  // high: upper bound of the keys of tokens that are not skipped.
  RowOrder(const OrderedRow& row, double high, RowOrderScratch& scratch);

  // Returns the id of the first token, in order, at which `stop` stops; -1 if none.
  //   stop.passes(total, end)  called for a bin, whose keys are at most `end`. If the walk surely
  //                            stops at none of its tokens, records the bin's total and returns
  //                            true. Otherwise returns false, and the bin is divided or its tokens
  //                            are walked.
  //   stop.stops(weight)       called for a single token: returns true, or records it and returns
  //                            false
  template <class Stop>
  int32_t walk(Stop& stop) const {
    for (size_t b = 0; b < RowOrderScratch::kBins; ++b) {
      if (passes(scratch_.totals[b], bins_.end(b), stop)) continue;
      if (const int32_t id = walk_members(members(b), stop); id >= 0) return id;
    }
    return -1;
  }

  // Zeroes the weights of this token and of all tokens after it. The order is invalid afterwards.
  void drop_from(int32_t id) const;

 private:
  // A bin of at most kFew tokens is sorted, another divided into kParts.
  static constexpr size_t kFew = 1024, kParts = 256;

  // Returns `ids` (ascending) sorted in the row's order.
  std::vector<int32_t> sorted(const std::vector<int32_t>& ids) const;
  std::vector<int32_t> members(size_t bin) const;

  template <class Stop>
  static bool passes(const BinTotal& total, double end, Stop& stop) {
    return total.weight == 0 || stop.passes(total, end);
  }

  // Walks these tokens only. ids: ascending.
  template <class Stop>
  int32_t walk_members(const std::vector<int32_t>& ids, Stop& stop) const {
    if (ids.size() <= kFew) return walk_sorted(ids, stop);
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const int32_t id : ids) {
      const double k = row_.key(id);
      low = std::min(low, k);
      high = std::max(high, k);
    }
    const KeyBins bins(kParts, low, high);
    if (!bins.divides()) return walk_sorted(ids, stop);
    std::vector<std::vector<int32_t>> parts(kParts);
    std::vector<BinTotal> totals(kParts);
    for (const int32_t id : ids) {
      const size_t b = bins.of(row_.key(id));
      parts[b].push_back(id);
      totals[b].weight += row_.weight(id);
      ++totals[b].count;
    }
    for (size_t b = 0; b < kParts; ++b) {
      if (passes(totals[b], bins.end(b), stop)) continue;
      if (const int32_t id = walk_members(parts[b], stop); id >= 0) return id;
    }
    return -1;
  }

  template <class Stop>
  int32_t walk_sorted(const std::vector<int32_t>& ids, Stop& stop) const {
    for (const int32_t id : sorted(ids))
      if (stop.stops(row_.weight(id))) return id;
    return -1;
  }

  OrderedRow row_;
  KeyBins bins_;
  RowOrderScratch& scratch_;
};

}  // namespace trireme
