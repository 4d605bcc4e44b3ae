#include "engine/ops/sampling/row_order.h"

#include <functional>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/sampling/sample.cpu.h"

namespace trireme {
namespace {

cpu::RowKeys<float> keys_of(const OrderedRow& row, size_t begin, size_t end) {
  return {row.logits.data() + begin, row.weights.data() + begin, static_cast<int64_t>(end - begin),
          row.largest, row.centre};
}

}  // namespace

RowOrder::RowOrder(const OrderedRow& row, double high, RowOrderScratch& scratch)
    : row_(row), bins_(RowOrderScratch::kBins, 0, high), scratch_(scratch) {
  const size_t n = row.logits.size();
  scratch.bin.resize(n);
  scratch.totals.assign(RowOrderScratch::kBins + 1, {});
  TRIREME_KERNEL(row_bins<float>)
  (keys_of(row, 0, n), bins_.per_unit(), RowOrderScratch::kBins - 1, RowOrderScratch::kBins,
   scratch.bin.data());
  for (size_t i = 0; i < n; ++i) {
    BinTotal& total = scratch.totals[scratch.bin[i]];
    total.weight += row.weights[i];
    ++total.count;
  }
}

void RowOrder::drop_from(int32_t id) const {
  const auto at = static_cast<size_t>(id);
  const double key = row_.key(id);
  const float logit = row_.logits[at];
  TRIREME_KERNEL(drop_above<float>)(keys_of(row_, 0, at), key, logit, true);
  TRIREME_KERNEL(drop_above<float>)(keys_of(row_, at, row_.logits.size()), key, logit, false);
}

std::vector<int32_t> RowOrder::members(size_t bin) const {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(scratch_.totals[bin].count));
  for (size_t i = 0; i < scratch_.bin.size(); ++i)
    if (scratch_.bin[i] == bin) ids.push_back(static_cast<int32_t>(i));
  return ids;
}

std::vector<int32_t> RowOrder::sorted(const std::vector<int32_t>& ids) const {
  struct RankedToken {
    double key;
    float logit;
    int32_t id;
    bool operator<(const RankedToken& other) const {
      if (key != other.key) return key < other.key;
      return logit != other.logit ? logit > other.logit : id < other.id;
    }
  };
  std::vector<RankedToken> ranked;
  ranked.reserve(ids.size());
  for (const int32_t id : ids)
    ranked.push_back({row_.key(id), row_.logits[static_cast<size_t>(id)], id});
  if (!std::ranges::is_sorted(ranked, std::less())) std::ranges::sort(ranked, std::less());
  std::vector<int32_t> out;
  out.reserve(ranked.size());
  for (const RankedToken& token : ranked) out.push_back(token.id);
  return out;
}

}  // namespace trireme
