#include "serving/scheduler/speculation.h"

#include <algorithm>

namespace trireme {

std::vector<int32_t> draft_from_text(std::span<const int32_t> text, const SpeculationConfig& config,
                                     int64_t count) {
  const auto length = std::ssize(text);
  const auto at = [&](int64_t i) { return text[static_cast<size_t>(i)]; };
  int64_t best = config.prompt_lookup_min - 1, place = -1;
  for (int64_t end = length - 2; end >= std::max<int64_t>(0, length - kLookBack); --end) {
    int64_t same = 0;
    while (same < config.prompt_lookup_max && same <= end &&
           at(end - same) == at(length - 1 - same))
      ++same;
    if (same <= best) continue;
    best = same;
    place = end + 1;
    if (best == config.prompt_lookup_max) break;
  }
  if (place < 0 || count <= 0) return {};
  const auto from = text.begin() + place;
  return {from, from + std::min(count, length - place)};
}

int64_t DraftAllowance::allowed(const SpeculationConfig& config) const {
  if (rest_ > 0) return 0;
  return allowed_ < 0 ? config.tokens : allowed_;
}

void DraftAllowance::verified(int64_t drafted, int64_t accepted, const SpeculationConfig& config) {
  const int64_t now = allowed_ < 0 ? config.tokens : allowed_;
  if (accepted == drafted) allowed_ = std::min(config.tokens, 2 * now);
  if (accepted > 0) return;
  allowed_ = std::max<int64_t>(1, now / 2);
  if (now == 1) rest_ = kRest;
}

}  // namespace trireme
