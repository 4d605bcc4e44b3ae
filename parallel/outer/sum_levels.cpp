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

SumLevels sum_levels(const ParallelSizes& sizes, const Layout& layout, Region region,
                     const std::vector<int>& nodes) {
  std::map<int, int> ranks;                  // by site: those that hold the same parameters
  std::vector<std::pair<int, int>> members;  // their indices in the region's group, and sites
  int own_site = 0;
  for (int rank = 0; rank < world_size(sizes); ++rank) {
    const Layout other = layout_of(sizes, rank);
    if (!holds_same(layout, other, region)) continue;
    const int site = nodes.empty() ? other.dp.index : nodes[static_cast<size_t>(rank)];
    ++ranks[site];
    members.emplace_back(other.of(region).index, site);
    if (other.of(region).index == layout.of(region).index) own_site = site;
  }
  SumLevels levels;
  for (const auto& [index, site] : members)
    if (site == own_site && index < layout.of(region).index) ++levels.inner.index;
  levels.inner.size = ranks.at(own_site);
  if (std::ranges::any_of(ranks, [&](const auto& r) { return r.second != levels.inner.size; })) {
    if (is_dense(region))
      fail_input(
          "compression.gradients.scope inter_node: nodes have different numbers of ranks "
          "with the same parameters; give each as many, or set scope to all");
    return {{}, layout.of(region)};
  }
  levels.outer.size = static_cast<int>(ranks.size());
  levels.outer.index = static_cast<int>(std::distance(ranks.begin(), ranks.find(own_site)));
  return levels;
}

SumGroups::SumGroups(Communicator& ranks, Region region, const SumLevels& levels) {
  const char* const what = is_dense(region) ? "" : " with the same experts";
  inner = ranks.split(levels.outer.index, levels.inner.index,
                      concat("ranks of site ", levels.outer.index, what));
  outer = ranks.split(levels.inner.index, levels.outer.index, concat("sites", what));
}

}  // namespace trireme
