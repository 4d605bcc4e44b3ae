#include "parallel/outer/sum_levels.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace trireme {
namespace {

bool holds_same(const Layout& a, const Layout& b, Region region) {
  if (a.pp.index != b.pp.index) return false;
  if (is_dense(region)) return a.tp.index == b.tp.index;
  return a.ep.index == b.ep.index && a.etp.index == b.etp.index;
}

}  // namespace

SumLevels sum_levels(const ParallelSizes& sizes, const Layout& layout, Region region) {
  std::map<int, int> ranks;  // by replica, its dp index: those that hold the same parameters
  SumLevels levels;
  for (int rank = 0; rank < world_size(sizes); ++rank) {
    const Layout other = layout_of(sizes, rank);
    if (!holds_same(layout, other, region)) continue;
    ++ranks[other.dp.index];
    const bool before = other.of(region).index < layout.of(region).index;
    if (before && other.dp.index == layout.dp.index) ++levels.inner.index;
  }
  levels.inner.size = ranks.at(layout.dp.index);
  if (std::ranges::any_of(ranks, [&](const auto& r) { return r.second != levels.inner.size; }))
    return {{}, layout.of(region)};
  levels.outer.size = static_cast<int>(ranks.size());
  levels.outer.index = static_cast<int>(std::distance(ranks.begin(), ranks.find(layout.dp.index)));
  return levels;
}

SumGroups::SumGroups(Communicator& ranks, Region region, const SumLevels& levels) {
  const char* const what = is_dense(region) ? "" : " with the same experts";
  inner = ranks.split(levels.outer.index, levels.inner.index,
                      concat("ranks of replica ", levels.outer.index, what));
  outer = ranks.split(levels.inner.index, levels.outer.index, concat("replicas", what));
}

}  // namespace trireme
