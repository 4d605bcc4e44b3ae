#include "serving/structured/rule_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "serving/structured/automaton_product.h"
#include "serving/structured/shortest_texts.h"

namespace trireme {
namespace {

using State = AutomatonState;

constexpr int64_t kMaxCount = int64_t{1} << 30;

class Nfa {
 public:
  struct Edge {
    int32_t first, last;  // bytes; or both kCalls + rule
    int32_t target;
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<int32_t> free;  // epsilon edges
  };
  static constexpr int32_t kCalls = 256;
  static constexpr int64_t kNodeBytes = 128, kEdgeBytes = 24, kFreeBytes = 8;  // as vectors grow
  // Counted repetition: its nodes are `head`, where a turn begins, to `last`.
  struct Loop {
    int32_t head = 0, last = 0;
    int32_t exit = 0;  // reached from the head by an epsilon edge
    int32_t max_turns = 0;
  };

  // counts: counts repetitions with many optional turns.
  Nfa(const Grammar& grammar, CompileBudget& budget, bool counts)
      : grammar_(grammar), budget_(budget), counts_(counts) {}

  int32_t add() {
    budget_.take_bytes(kNodeBytes);
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  // Adds paths for the texts of an expression from one node to another.
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
  const std::vector<Loop>& loops() const { return loops_; }  // ascending
  // Counted repetition of a node; nullptr: none.
  const Loop* loop_of(int32_t node) const {
    const auto after = std::ranges::upper_bound(loops_, node, {}, &Loop::head);
    if (after == loops_.begin() || node > std::prev(after)->last) return nullptr;
    return &*std::prev(after);
  }

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
    // Characters with equal last bytes share their nodes, which are most nodes of a large set.
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
    if (counts_ && e.most - e.least >= budget_.limits().min_counted) {
      counts_ = false;  // no counting inside a counted repetition
      const int32_t head = add(), end = add();
      free(from, head);
      build(e.parts[0], head, end);
      free(end, head);
      free(head, to);
      loops_.push_back({head, static_cast<int32_t>(nodes_.size()) - 1, to,
                        static_cast<int32_t>(std::min(e.most - e.least, kMaxCount))});
      counts_ = true;
      return;
    }
    if (e.most < 0) {
      const int32_t loop = add();
      free(from, loop);
      const int32_t end = add();  // not the loop itself: the part may have loops, too
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
  bool counts_;
  std::vector<Node> nodes_;
  std::vector<Loop> loops_;
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

  // nullopt: a count would not determine how a text has been read.
  std::optional<std::vector<State>> run(int32_t start) {
    for (const Nfa::Loop& loop : nfa_.loops()) check_turns(loop);
    id_of({start});
    for (size_t i = 0; i < sets_.size() && !is_ambiguous_; ++i) expand(i);
    if (is_ambiguous_) return {};
    return std::move(states_);
  }

 private:
  // Epsilon closure of a set, reduced to the nodes that matter: those with edges, heads of loops
  // and the end.
  Set closed(Set set) {
    ++stamp_;
    Set out, work = std::move(set);
    while (!work.empty()) {
      const int32_t s = work.back();
      work.pop_back();
      if (std::exchange(seen_[static_cast<size_t>(s)], stamp_) == stamp_) continue;
      budget_.check_time();
      const Nfa::Node& node = nfa_.nodes()[static_cast<size_t>(s)];
      const Nfa::Loop* loop = nfa_.loop_of(s);
      if (!node.edges.empty() || s == end_ || (loop != nullptr && loop->head == s))
        out.push_back(s);
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
    State state;
    state.final = std::ranges::binary_search(set, end_);
    if (!nfa_.loops().empty()) count(set, state);
    states_.push_back(std::move(state));
    sets_.push_back(set);
    ids_.emplace(std::move(set), id);
    return id;
  }

  // Ambiguous if a turn may have ended where it may also continue.
  void check_turns(const Nfa::Loop& loop) {
    for (int32_t first = loop.head + 1; first <= loop.last && !is_ambiguous_; ++first) {
      ++stamp_;
      bool ends = false, can_continue = false;
      for (Set work = {first}; !work.empty();) {
        const int32_t s = work.back();
        work.pop_back();
        if (std::exchange(seen_[static_cast<size_t>(s)], stamp_) == stamp_) continue;
        budget_.check_time();
        ends = ends || s == loop.head;
        if (s == loop.head) continue;
        const Nfa::Node& node = nfa_.nodes()[static_cast<size_t>(s)];
        can_continue = can_continue || !node.edges.empty();
        work.insert(work.end(), node.free.begin(), node.free.end());
      }
      is_ambiguous_ = ends && can_continue;
    }
  }

  // A set must be the closure of one loop's head, or inside one loop, or outside all loops.
  void count(const Set& set, State& state) {
    const Nfa::Loop *inside = nullptr, *head = nullptr;
    size_t nodes_inside = 0;
    for (const int32_t s : set) {
      const Nfa::Loop* loop = nfa_.loop_of(s);
      if (loop == nullptr) continue;
      is_ambiguous_ = is_ambiguous_ || (inside != nullptr && inside != loop);
      inside = loop;
      ++nodes_inside;
      if (loop->head == s) head = loop;
    }
    if (inside == nullptr) return;
    const bool is_one = head != nullptr ? set == closed({head->head}) : nodes_inside == set.size();
    // A loop that may follow itself would have unbounded turns.
    const bool follows_itself =
        head != nullptr && std::ranges::binary_search(closed({head->exit}), head->head);
    is_ambiguous_ = is_ambiguous_ || !is_one || follows_itself;
    state.counter = head != nullptr ? StateCounter::kLoop : StateCounter::kInLoop;
    state.max_count = state.free_count = inside->max_turns;
  }

  void expand(size_t number) {
    const bool is_loop = states_[number].counter == StateCounter::kLoop;
    // Within a range, all bytes lead to the same states.
    std::array<bool, 257> begins{};
    std::map<int32_t, Set> calls;
    for (const int32_t s : sets_[number])
      for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(s)].edges) {
        budget_.check_time();
        if (edge.first >= Nfa::kCalls) {
          calls[edge.first - Nfa::kCalls].push_back(edge.target);
          // The called rule may have an empty text, so turns could repeat without end.
          is_ambiguous_ = is_ambiguous_ || (is_loop && nfa_.loop_of(s) != nullptr);
        } else {
          begins[static_cast<size_t>(edge.first)] = begins[static_cast<size_t>(edge.last) + 1] =
              true;
        }
      }
    std::vector<AutomatonState::Edge> edges;
    for (int32_t first = 0, last = 0; first < 256; first = last + 1) {
      for (last = first; last < 255 && !begins[static_cast<size_t>(last) + 1];) ++last;
      bool begins_turn = false;
      Set targets = behind(number, first, begins_turn);
      if (targets.empty()) continue;
      const int32_t target = id_of(std::move(targets));
      if (!edges.empty() && edges.back().last + 1 == first && edges.back().target == target &&
          edges.back().begins_turn == begins_turn)
        edges.back().last = static_cast<uint8_t>(last);
      else
        edges.push_back(
            {static_cast<uint8_t>(first), static_cast<uint8_t>(last), begins_turn, target});
    }
    for (auto& [rule, targets] : calls) {
      const int32_t target = id_of(std::move(targets));
      states_[number].calls.push_back({rule, target});
    }
    budget_.take_bytes(static_cast<int64_t>(edges.size() * sizeof(edges[0]) +
                                            calls.size() * sizeof(AutomatonState::Call)));
    states_[number].edges = std::move(edges);
  }

  // Nodes that a byte leads to. begins_turn: at a loop's head, whether it begins a turn.
  Set behind(size_t number, int32_t byte, bool& begins_turn) {
    Set targets;
    const bool is_loop = states_[number].counter == StateCounter::kLoop;
    for (const int32_t s : sets_[number])
      for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(s)].edges) {
        budget_.check_time();
        if (byte < edge.first || edge.last < byte) continue;
        const bool begins = is_loop && nfa_.loop_of(s) != nullptr;
        is_ambiguous_ = is_ambiguous_ || (!targets.empty() && begins != begins_turn);
        begins_turn = begins;
        targets.push_back(edge.target);
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
  bool is_ambiguous_ = false;
};

std::optional<std::vector<State>> automaton_of(const Grammar& grammar, Grammar::Node body,
                                               CompileBudget& budget, bool counts) {
  Nfa nfa(grammar, budget, counts);
  const int32_t start = nfa.add(), end = nfa.add();
  nfa.build(body, start, end);
  return Determiniser(nfa, end, budget).run(start);
}

// Adds a byte counter to a rule without calls: a byte is allowed if the rule can still end in time.
void count_bytes(std::vector<State>& states, int64_t max_bytes) {
  const std::vector<int64_t> to_end = bytes_to_end(states, std::vector<int32_t>{0});
  if (to_end[0] > max_bytes) {
    states.assign(1, {});
    return;
  }
  int64_t furthest = 0;
  for (const int64_t bytes : to_end)
    if (bytes < kNeverEnds) furthest = std::max(furthest, bytes);
  for (State& state : states) {
    state.counter = StateCounter::kBytes;
    state.max_count = static_cast<int32_t>(std::min(max_bytes, kMaxCount));
    state.free_count = static_cast<int32_t>(std::max<int64_t>(state.max_count - furthest, 0));
  }
}

}  // namespace

std::vector<State> rule_automaton(const Grammar& grammar, const Grammar::Rule& rule,
                                  CompileBudget& budget) {
  if (rule.bodies.empty()) return std::vector<State>(1);
  const bool is_plain = rule.bodies.size() == 1 && rule.max_bytes < 0 && rule.automata.empty();
  if (is_plain)
    if (auto counted = automaton_of(grammar, rule.bodies[0], budget, true)) return *counted;
  // Without counting the result is never nullopt.
  const auto plain = [&](size_t body) {
    return automaton_of(grammar, rule.bodies[body], budget, false).value();
  };
  std::vector<State> states = plain(0);
  for (size_t i = 1; i < rule.bodies.size(); ++i) states = intersection(states, plain(i), budget);
  for (const FiniteAutomaton& automaton : rule.automata)
    states = intersection(states, automaton, budget);
  if (rule.max_bytes >= 0) count_bytes(states, rule.max_bytes);
  return states;
}

}  // namespace trireme
