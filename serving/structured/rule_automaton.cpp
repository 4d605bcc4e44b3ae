#include "serving/structured/rule_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

namespace trireme {
namespace {

using State = AutomatonState;

class Nfa {
 public:
  struct Edge {
    int32_t first, last;  // bytes, or kCalls + a rule
    int32_t target;
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<int32_t> free;  // reached without a symbol
  };
  static constexpr int32_t kCalls = 256;
  static constexpr int64_t kNodeBytes = 128, kEdgeBytes = 24, kFreeBytes = 8;  // as vectors grow

  Nfa(const Grammar& grammar, CompileBudget& budget) : grammar_(grammar), budget_(budget) {}

  int32_t add() {
    budget_.take_bytes(kNodeBytes);
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  // Ways for the texts of an expression from one state to another.
  void build(Grammar::Node node, int32_t from, int32_t to) {
    const Grammar::Expression& e = grammar_.at(node);
    switch (e.kind) {
      case Grammar::Kind::kLiteral: return build_literal(e.bytes, from, to);
      case Grammar::Kind::kChars: return build_chars(e.chars, from, to);
      case Grammar::Kind::kCall: return connect(from, kCalls + e.rule, kCalls + e.rule, to);
      case Grammar::Kind::kSequence: {
        for (size_t i = 0; i < e.parts.size(); ++i) {
          const int32_t next = i + 1 == e.parts.size() ? to : add();
          build(e.parts[i], std::exchange(from, next), next);
        }
        if (e.parts.empty()) free(from, to);
        return;
      }
      case Grammar::Kind::kChoice:
        for (const Grammar::Node part : e.parts) build(part, from, to);
        return;
      case Grammar::Kind::kRepeat: return build_repeat(e, from, to);
    }
  }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  void connect(int32_t from, int32_t first, int32_t last, int32_t to) {
    budget_.take_bytes(kEdgeBytes);
    nodes_[static_cast<size_t>(from)].edges.push_back({first, last, to});
  }
  void free(int32_t from, int32_t to) {
    budget_.take_bytes(kFreeBytes);
    nodes_[static_cast<size_t>(from)].free.push_back(to);
  }
  void build_literal(const std::string& bytes, int32_t from, int32_t to) {
    if (bytes.empty()) return free(from, to);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int32_t next = i + 1 == bytes.size() ? to : add();
      const auto byte = static_cast<uint8_t>(bytes[i]);
      connect(std::exchange(from, next), byte, byte, next);
    }
  }
  void build_chars(const CharSet& set, int32_t from, int32_t to) {
    // Characters share their last bytes: of a large set most of the states.
    std::map<std::vector<std::pair<uint8_t, uint8_t>>, int32_t> tails;
    for (const CharRange& range : set)
      for (const std::vector<ByteRange>& bytes : utf8_ranges(range)) {
        int32_t next = to;
        std::vector<std::pair<uint8_t, uint8_t>> tail;
        for (size_t i = bytes.size(); i-- > 1;) {
          tail.emplace_back(bytes[i].first, bytes[i].last);
          const auto [at, is_new] = tails.try_emplace(tail, 0);
          if (is_new) {
            at->second = add();
            connect(at->second, bytes[i].first, bytes[i].last, next);
          }
          next = at->second;
        }
        connect(from, bytes[0].first, bytes[0].last, next);
      }
  }
  void build_repeat(const Grammar::Expression& e, int32_t from, int32_t to) {
    for (int64_t i = 0; i < e.least; ++i) {
      const int32_t next = add();
      build(e.parts[0], std::exchange(from, next), next);
    }
    if (e.most < 0) {
      const int32_t loop = add();
      free(from, loop);
      const int32_t end = add();  // not the loop itself: inside may be loops, too
      build(e.parts[0], loop, end);
      free(end, loop);
      return free(loop, to);
    }
    for (int64_t i = e.least; i < e.most; ++i) {
      free(from, to);
      const int32_t next = add();
      build(e.parts[0], std::exchange(from, next), next);
    }
    free(from, to);
  }

  const Grammar& grammar_;
  CompileBudget& budget_;
  std::vector<Node> nodes_;
};

using Set = std::vector<int32_t>;  // sorted

struct SetHash {
  size_t operator()(const Set& set) const {
    uint64_t h = 1469598103934665603u;
    for (const int32_t s : set) h = (h ^ static_cast<uint32_t>(s)) * 1099511628211u;
    return h;
  }
};

class Determiniser {
 public:
  Determiniser(const Nfa& nfa, int32_t end, CompileBudget& budget)
      : nfa_(nfa), end_(end), budget_(budget), seen_(nfa.nodes().size(), 0) {}

  std::vector<State> run(int32_t start) {
    id_of({start});
    for (size_t i = 0; i < sets_.size(); ++i) expand(i);
    return std::move(states_);
  }

 private:
  // With what is reached from it without a symbol; only states with edges matter, and the end.
  Set closed(Set set) {
    ++stamp_;
    Set out, work = std::move(set);
    while (!work.empty()) {
      const int32_t s = work.back();
      work.pop_back();
      if (std::exchange(seen_[static_cast<size_t>(s)], stamp_) == stamp_) continue;
      budget_.check_time();
      const Nfa::Node& node = nfa_.nodes()[static_cast<size_t>(s)];
      if (!node.edges.empty() || s == end_) out.push_back(s);
      work.insert(work.end(), node.free.begin(), node.free.end());
    }
    std::ranges::sort(out);
    return out;
  }

  int32_t id_of(Set set) {
    set = closed(std::move(set));
    const auto found = ids_.find(set);
    if (found != ids_.end()) return found->second;
    budget_.take_state();
    budget_.take_bytes(static_cast<int64_t>(2 * set.size() * sizeof(int32_t) + 256));
    const auto id = static_cast<int32_t>(sets_.size());
    State& state = states_.emplace_back();
    state.final = std::ranges::binary_search(set, end_);
    sets_.push_back(set);
    ids_.emplace(std::move(set), id);
    return id;
  }

  void expand(size_t number) {
    // Bytes lead to the same states from one end of a range to the next.
    std::array<bool, 257> begins{};
    std::map<int32_t, Set> calls;
    for (const int32_t s : sets_[number])
      for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(s)].edges) {
        budget_.check_time();
        if (edge.first >= Nfa::kCalls)
          calls[edge.first - Nfa::kCalls].push_back(edge.target);
        else
          begins[static_cast<size_t>(edge.first)] = begins[static_cast<size_t>(edge.last) + 1] =
              true;
      }
    std::vector<AutomatonState::Edge> edges;
    for (int32_t first = 0, last = 0; first < 256; first = last + 1) {
      for (last = first; last < 255 && !begins[static_cast<size_t>(last) + 1];) ++last;
      Set targets = behind(number, first);
      if (targets.empty()) continue;
      const int32_t target = id_of(std::move(targets));
      if (!edges.empty() && edges.back().last + 1 == first && edges.back().target == target)
        edges.back().last = static_cast<uint8_t>(last);
      else
        edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), target});
    }
    for (auto& [rule, targets] : calls) {
      const int32_t target = id_of(std::move(targets));
      states_[number].calls.push_back({rule, target});
    }
    budget_.take_bytes(static_cast<int64_t>(edges.size() * sizeof(edges[0]) +
                                            calls.size() * sizeof(AutomatonState::Call)));
    states_[number].edges = std::move(edges);
  }

  // The states that a byte leads to.
  Set behind(size_t number, int32_t byte) {
    Set targets;
    for (const int32_t s : sets_[number])
      for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(s)].edges) {
        budget_.check_time();
        if (edge.first <= byte && byte <= edge.last) targets.push_back(edge.target);
      }
    return targets;
  }

  const Nfa& nfa_;
  int32_t end_;
  CompileBudget& budget_;
  std::vector<uint64_t> seen_;
  uint64_t stamp_ = 0;
  std::unordered_map<Set, int32_t, SetHash> ids_;
  std::vector<Set> sets_;
  std::vector<State> states_;
};

}  // namespace

std::vector<State> rule_automaton(const Grammar& grammar, Grammar::Node body,
                                  CompileBudget& budget) {
  Nfa nfa(grammar, budget);
  const int32_t start = nfa.add(), end = nfa.add();
  if (body >= 0) nfa.build(body, start, end);
  return Determiniser(nfa, end, budget).run(start);
}

}  // namespace trireme
