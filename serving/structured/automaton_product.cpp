#include "serving/structured/automaton_product.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace trireme {

std::vector<AutomatonState> intersection(std::span<const AutomatonState> a,
                                         std::span<const AutomatonState> b, CompileBudget& budget) {
  std::vector<AutomatonState> out;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  std::unordered_map<uint64_t, int32_t> ids;
  const auto id_of = [&](int32_t of_a, int32_t of_b) {
    const uint64_t key = uint64_t{static_cast<uint32_t>(of_a)} << 32 | static_cast<uint32_t>(of_b);
    const auto [at, is_new] = ids.try_emplace(key, static_cast<int32_t>(out.size()));
    if (is_new) {
      budget.take_state();
      budget.take_bytes(int64_t{sizeof(AutomatonState)} + 64);
      pairs.emplace_back(of_a, of_b);
      out.emplace_back().final =
          a[static_cast<size_t>(of_a)].final && b[static_cast<size_t>(of_b)].final;
    }
    return at->second;
  };
  id_of(0, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [of_a, of_b] = pairs[i];
    const auto &left = a[static_cast<size_t>(of_a)].edges,
               &right = b[static_cast<size_t>(of_b)].edges;
    TRIREME_CHECK(
        a[static_cast<size_t>(of_a)].calls.empty() && b[static_cast<size_t>(of_b)].calls.empty(),
        "automata that call rules cannot be intersected");
    std::vector<AutomatonState::Edge> edges;
    for (size_t l = 0, r = 0; l < left.size() && r < right.size();) {
      budget.check_time();
      const uint8_t first = std::max(left[l].first, right[r].first);
      const uint8_t last = std::min(left[l].last, right[r].last);
      if (first <= last)
        edges.push_back({first, last, false, id_of(left[l].target, right[r].target)});
      (left[l].last < right[r].last ? l : r) += 1;
    }
    budget.take_bytes(static_cast<int64_t>(edges.size() * sizeof(edges[0])));
    out[i].edges = std::move(edges);
  }
  return out;
}

FiniteAutomaton complement_of(std::span<const AutomatonState> a, CompileBudget& budget) {
  const auto nowhere = static_cast<int32_t>(a.size());
  FiniteAutomaton out(a.size() + 1);
  for (size_t s = 0; s < out.size(); ++s) {
    out[s].final = s == a.size() || !a[s].final;
    int32_t next = 0;
    const auto fill_up_to = [&](int32_t end) {
      if (next < end)
        out[s].edges.push_back(
            {static_cast<uint8_t>(next), static_cast<uint8_t>(end - 1), false, nowhere});
    };
    if (s < a.size())
      for (const AutomatonState::Edge& edge : a[s].edges) {
        fill_up_to(edge.first);
        out[s].edges.push_back({edge.first, edge.last, false, edge.target});
        next = edge.last + 1;
      }
    fill_up_to(256);
    budget.take_bytes(static_cast<int64_t>(sizeof(AutomatonState) +
                                           out[s].edges.size() * sizeof(AutomatonState::Edge)));
  }
  return out;
}

}  // namespace trireme
