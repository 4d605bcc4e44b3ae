// Trie: map from strings to values, searched for the strings that start at a position of a text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class Trie {
 public:
  // Builds the trie from (string, value) pairs: no string is empty, no value negative. Of a
  // repeated string the last value counts.
  explicit Trie(std::vector<std::pair<std::string, int32_t>> entries = {}) {
    std::ranges::stable_sort(entries, {}, &std::pair<std::string, int32_t>::first);
    nodes_.push_back({});
    build(0, entries, 0, entries.size(), 0);
  }

  // Calls visit(end, value) for each string text[begin, end), the shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, size_t begin, Visit&& visit) const {
    const Node* node = &nodes_[0];
    for (size_t at = begin; at < text.size();) {
      const auto first = edges_.begin() + node->first_edge, last = first + node->edges;
      const auto edge = std::lower_bound(first, last, static_cast<uint8_t>(text[at]),
                                         [](const Edge& e, uint8_t b) { return e.byte < b; });
      if (edge == last || edge->byte != static_cast<uint8_t>(text[at])) return;
      node = &nodes_[static_cast<size_t>(edge->node)];
      ++at;
      if (node->value >= 0) visit(at, node->value);
    }
  }
  // Returns whether any string begins with this byte.
  bool can_begin_with(char byte) const { return begins_[static_cast<uint8_t>(byte)]; }

 private:
  struct Node {
    int32_t value = -1;
    int32_t first_edge = 0, edges = 0;
  };
  struct Edge {
    uint8_t byte;
    int32_t node;
  };

  // Entries [begin, end) share their first `depth` bytes, which led to `node`.
  void build(size_t node, const std::vector<std::pair<std::string, int32_t>>& entries, size_t begin,
             size_t end, size_t depth) {
    while (begin < end && entries[begin].first.size() == depth)
      nodes_[node].value = entries[begin++].second;
    const auto byte_of = [&](size_t i) { return static_cast<uint8_t>(entries[i].first[depth]); };
    std::vector<std::pair<size_t, size_t>> groups;
    for (size_t i = begin; i < end;) {
      size_t next = i + 1;
      while (next < end && byte_of(next) == byte_of(i)) ++next;
      groups.emplace_back(i, next);
      i = next;
    }
    const size_t first = edges_.size();
    nodes_[node].first_edge = static_cast<int32_t>(first);
    nodes_[node].edges = static_cast<int32_t>(groups.size());
    for (const auto& [from, to] : groups) {
      edges_.push_back({byte_of(from), static_cast<int32_t>(nodes_.size())});
      nodes_.push_back({});
      if (depth == 0) begins_[byte_of(from)] = true;
    }
    for (size_t g = 0; g < groups.size(); ++g)
      build(static_cast<size_t>(edges_[first + g].node), entries, groups[g].first, groups[g].second,
            depth + 1);
  }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  bool begins_[256] = {};
};

}  // namespace trireme
