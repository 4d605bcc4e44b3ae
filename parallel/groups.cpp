#include "parallel/groups.h"

#include <map>
#include <tuple>

namespace trireme {
namespace {

// Splits the world into groups of ranks with equal keys; the rank's group is the number of its key.
template <class KeyOf, class IndexOf>
std::unique_ptr<Communicator> split_by(Communicator& world, const ParallelSizes& sizes,
                                       const char* name, const KeyOf& key_of,
                                       const IndexOf& index_of) {
  using Key = decltype(key_of(Layout{}));
  std::map<Key, int> colors;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Key key = key_of(layout_of(sizes, rank));
    colors.emplace(key, static_cast<int>(colors.size()));
  }
  const Layout mine = layout_of(sizes, world.rank());
  const int color = colors.at(key_of(mine));
  return world.split(color, index_of(mine), concat(name, " group ", color, " of ", colors.size()));
}

}  // namespace

Groups::Groups(Communicator& all, const ParallelSizes& sizes, int kv_copies)
    : layout(layout_of(sizes, all.rank())), world(all) {
  TRIREME_CHECK(all.size() == world_size(sizes), "layout ", describe(sizes), " over ", all.size(),
                " ranks");
  TRIREME_CHECK(kv_copies >= 1 && sizes.tp % kv_copies == 0, kv_copies,
                " copies of key/value heads do not divide tp, ", sizes.tp);
  const auto make = [&](const char* name, const auto& key_of, const auto& index_of) {
    return split_by(all, sizes, name, key_of, index_of);
  };
  using L = Layout;
  tp = make(
      "tp", [](const L& l) { return std::tuple(l.pp.index, l.dp.index, l.cp.index); },
      [](const L& l) { return l.tp.index; });
  cp = make(
      "cp", [](const L& l) { return std::tuple(l.pp.index, l.dp.index, l.tp.index); },
      [](const L& l) { return l.cp.index; });
  dp = make(
      "dp", [](const L& l) { return std::tuple(l.pp.index, l.cp.index, l.tp.index); },
      [](const L& l) { return l.dp.index; });
  pp = make(
      "pp", [](const L& l) { return std::tuple(l.dp.index, l.cp.index, l.tp.index); },
      [](const L& l) { return l.pp.index; });
  data = make(
      "dp x cp", [](const L& l) { return std::tuple(l.pp.index, l.tp.index); },
      [](const L& l) { return l.data.index; });
  ep = make(
      "ep", [](const L& l) { return std::tuple(l.pp.index, l.edp.index, l.etp.index); },
      [](const L& l) { return l.ep.index; });
  etp = make(
      "etp", [](const L& l) { return std::tuple(l.pp.index, l.edp.index, l.ep.index); },
      [](const L& l) { return l.etp.index; });
  edp = make(
      "edp", [](const L& l) { return std::tuple(l.pp.index, l.ep.index, l.etp.index); },
      [](const L& l) { return l.edp.index; });
  kv = make(
      "kv copies",
      [&](const L& l) {
        return std::tuple(l.pp.index, l.dp.index, l.cp.index, l.tp.index / kv_copies);
      },
      [](const L& l) { return l.tp.index; });
  // The stages in between get a group of one stage each.
  tied = make(
      "tied embedding",
      [](const L& l) {
        const int stage = l.pp.index + 1 == l.pp.size ? 0 : l.pp.index;
        return std::tuple(stage, l.dp.index, l.cp.index, l.tp.index);
      },
      [](const L& l) { return l.pp.index; });
  if (sizes.cp > 1) context = std::make_unique<ContextAttention>(*cp, sizes.cp_ulysses);
}

}  // namespace trireme
