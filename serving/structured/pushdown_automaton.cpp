#include "serving/structured/pushdown_automaton.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "serving/structured/rule_automaton.h"
#include "serving/structured/shortest_texts.h"

namespace trireme {

PushdownAutomaton::PushdownAutomaton(const Grammar& grammar, int32_t root, CompileBudget& budget) {
  for (const Grammar::Rule& rule : grammar.rules()) {
    std::vector<State> states = rule_automaton(grammar, rule, budget);
    const auto base = static_cast<int32_t>(states_.size());
    starts_.push_back(base);
    for (State& state : states) {
      for (Edge& edge : state.edges) edge.target += base;
      for (Call& call : state.calls) call.target += base;
      states_.push_back(std::move(state));
    }
  }
  remove_useless();
  root_ = start(root);
  const State& first = states_[static_cast<size_t>(root_)];
  if (!first.final && first.edges.empty() && first.calls.empty())
    fail_input("no text satisfies the constraint");
  merge_equal(budget);
  root_ = start(root);
  check_left_recursion(budget);
  bytes_to_end_ = trireme::bytes_to_end(states_, starts_);
  counts_ =
      std::ranges::any_of(states_, [](const State& s) { return s.counter != StateCounter::kNone; });
}

void PushdownAutomaton::remove_useless() {
  const std::vector<int64_t> bytes = trireme::bytes_to_end(states_, starts_);
  const auto ends = [&](int32_t state) { return bytes[static_cast<size_t>(state)] < kNeverEnds; };
  for (State& state : states_) {
    std::erase_if(state.edges, [&](const Edge& e) { return !ends(e.target); });
    std::erase_if(state.calls,
                  [&](const Call& c) { return !ends(c.target) || !ends(start(c.rule)); });
  }
}

// Merges states with equal continuations; in word lists these are most of the endings. Proceeds
// from the last state to the first: targets usually have higher numbers, so they are merged
// already.
void PushdownAutomaton::merge_equal(CompileBudget& budget) {
  using Key = std::tuple<bool, std::vector<int32_t>>;
  for (bool changed = true; changed;) {
    changed = false;
    std::map<Key, int32_t> first_of;
    std::vector<int32_t> same(states_.size());
    std::iota(same.begin(), same.end(), 0);
    const auto one = [&](int32_t s) { return same[static_cast<size_t>(s)]; };
    for (size_t s = states_.size(); s-- > 0;) {
      budget.check_time();
      const State& state = states_[s];
      Key key{state.final,
              {static_cast<int32_t>(state.counter), state.max_count, state.free_count}};
      for (const Edge& e : state.edges)
        std::get<1>(key).insert(std::get<1>(key).end(),
                                {e.first, e.last, e.begins_turn ? 1 : 0, one(e.target)});
      for (const Call& c : states_[s].calls)
        std::get<1>(key).insert(std::get<1>(key).end(), {-1, c.rule, one(c.target)});
      same[s] = first_of.try_emplace(std::move(key), static_cast<int32_t>(s)).first->second;
      changed = changed || same[s] != static_cast<int32_t>(s);
    }
    if (changed) keep_first(same);
  }
}

// Keeps the first state of each class of equal states. same[s]: the first state of the class of s.
void PushdownAutomaton::keep_first(const std::vector<int32_t>& same) {
  std::vector<int32_t> place(states_.size());
  std::vector<State> kept;
  for (size_t s = 0; s < states_.size(); ++s) {
    if (same[s] != static_cast<int32_t>(s)) continue;
    place[s] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(states_[s]));
  }
  const auto rename = [&](int32_t& s) {
    s = place[static_cast<size_t>(same[static_cast<size_t>(s)])];
  };
  for (State& state : kept) {
    for (Edge& edge : state.edges) rename(edge.target);
    for (Call& call : state.calls) rename(call.target);
  }
  for (int32_t& s : starts_) rename(s);
  states_ = std::move(kept);
}

std::vector<char> PushdownAutomaton::nullable_rules(CompileBudget& budget) const {
  // States that can reach the end of their rule without a byte.
  std::vector<char> empty(states_.size(), 0);
  for (size_t s = 0; s < states_.size(); ++s) empty[s] = states_[s].final ? 1 : 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t s = states_.size(); s-- > 0;) {
      budget.check_time();
      if (empty[s] != 0) continue;
      for (const Call& call : states_[s].calls)
        if (empty[static_cast<size_t>(start(call.rule))] != 0 &&
            empty[static_cast<size_t>(call.target)] != 0)
          empty[s] = 1;
      changed = changed || empty[s] != 0;
    }
  }
  std::vector<char> nullable(starts_.size(), 0);
  for (size_t r = 0; r < starts_.size(); ++r) nullable[r] = empty[static_cast<size_t>(starts_[r])];
  return nullable;
}

void PushdownAutomaton::check_left_recursion(CompileBudget& budget) const {
  const std::vector<char> nullable = nullable_rules(budget);
  // Edges without a byte lead from a state to the starts of the rules it calls, and to those called
  // after calls that may be empty. They must have no cycle. 0: not visited, 1: on the path, 2:
  // done.
  std::vector<char> seen(states_.size(), 0);
  const auto next_of = [&](int32_t s) {
    std::vector<int32_t> next;
    for (const Call& call : states_[static_cast<size_t>(s)].calls) next.push_back(start(call.rule));
    return next;
  };
  // A cycle through empty calls alone is harmless, unless it includes the start of a called rule:
  // (a?)* is one state.
  const auto reached = [&](int32_t s) {
    std::vector<int32_t> all = {s};
    for (size_t i = 0; i < all.size(); ++i)
      for (const Call& call : states_[static_cast<size_t>(all[i])].calls) {
        budget.check_time();
        if (nullable[static_cast<size_t>(call.rule)] != 0 &&
            std::ranges::find(all, call.target) == all.end())
          all.push_back(call.target);
      }
    std::vector<int32_t> next;
    for (const int32_t one : all)
      for (const int32_t called : next_of(one)) next.push_back(called);
    return next;
  };
  for (const int32_t first : starts_) {
    if (seen[static_cast<size_t>(first)] != 0) continue;
    std::vector<std::pair<int32_t, std::vector<int32_t>>> way = {{first, reached(first)}};
    seen[static_cast<size_t>(first)] = 1;
    while (!way.empty()) {
      auto& [state, next] = way.back();
      if (next.empty()) {
        seen[static_cast<size_t>(state)] = 2;
        way.pop_back();
        continue;
      }
      const int32_t to = next.back();
      next.pop_back();
      char& mark = seen[static_cast<size_t>(to)];
      if (mark == 1)
        fail_input("a rule calls itself before anything is read (left recursion): write it with ",
                   "repetition instead");
      if (mark == 2) continue;
      mark = 1;
      way.emplace_back(to, reached(to));
    }
  }
}

}  // namespace trireme
