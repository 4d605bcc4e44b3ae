#include "serving/structured/pushdown_automaton.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "serving/structured/rule_automaton.h"

namespace trireme {
namespace {

using State = PushdownAutomaton::State;

// Which states lead to an end of their rule, and which rules have texts at all.
class Productive {
 public:
  Productive(const std::vector<State>& states, const std::vector<int32_t>& starts)
      : good_(states.size(), 0),
        has_text_(starts.size(), 0),
        before_(states.size()),
        calls_before_(states.size()),
        rules_of_(states.size()),
        callers_(starts.size()) {
    for (size_t s = 0; s < states.size(); ++s) {
      const auto from = static_cast<int32_t>(s);
      for (const auto& edge : states[s].edges) before_[index(edge.target)].push_back(from);
      for (const auto& call : states[s].calls) {
        calls_before_[index(call.target)].push_back({call.rule, from});
        callers_[index(call.rule)].push_back({call.target, from});
      }
    }
    for (size_t r = 0; r < starts.size(); ++r)
      rules_of_[index(starts[r])].push_back(static_cast<int32_t>(r));
    for (size_t s = 0; s < states.size(); ++s)
      if (states[s].final) mark(static_cast<int32_t>(s));
    while (!work_.empty()) spread();
  }
  bool state(int32_t s) const { return good_[index(s)] != 0; }
  bool rule(int32_t r) const { return has_text_[index(r)] != 0; }

 private:
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  void mark(int32_t s) {
    if (std::exchange(good_[index(s)], 1) == 0) work_.push_back(s);
  }
  void spread() {
    const int32_t s = work_.back();
    work_.pop_back();
    for (const int32_t from : before_[index(s)]) mark(from);
    for (const auto& [called, from] : calls_before_[index(s)])
      if (rule(called)) mark(from);
    for (const int32_t r : rules_of_[index(s)]) {
      has_text_[index(r)] = 1;
      for (const auto& [target, from] : callers_[index(r)])
        if (state(target)) mark(from);
    }
  }
  std::vector<char> good_, has_text_;
  std::vector<std::vector<int32_t>> before_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> calls_before_;
  std::vector<std::vector<int32_t>> rules_of_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> callers_;
  std::vector<int32_t> work_;
};

}  // namespace

PushdownAutomaton::PushdownAutomaton(const Grammar& grammar, int32_t root, CompileBudget& budget) {
  for (const Grammar::Node body : grammar.rules()) {
    std::vector<State> states = rule_automaton(grammar, body, budget);
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
    fail_input("no text at all satisfies it");
  merge_equal(budget);
  root_ = start(root);
  check_left_recursion();
}

void PushdownAutomaton::remove_useless() {
  const Productive productive(states_, starts_);
  for (State& state : states_) {
    std::erase_if(state.edges, [&](const Edge& e) { return !productive.state(e.target); });
    std::erase_if(state.calls, [&](const Call& c) {
      return !productive.state(c.target) || !productive.rule(c.rule);
    });
  }
}

// States with the same ways on are one: of lists of words, most of their ends.
void PushdownAutomaton::merge_equal(CompileBudget& budget) {
  using Key = std::tuple<bool, std::vector<int32_t>>;
  for (bool changed = true; changed;) {
    changed = false;
    std::map<Key, int32_t> first_of;
    std::vector<int32_t> same(states_.size());
    std::vector<State> kept;
    for (size_t s = 0; s < states_.size(); ++s) {
      budget.check_time();
      Key key{states_[s].final, {}};
      for (const Edge& e : states_[s].edges)
        std::get<1>(key).insert(std::get<1>(key).end(), {e.first, e.last, e.target});
      for (const Call& c : states_[s].calls)
        std::get<1>(key).insert(std::get<1>(key).end(), {-1, c.rule, c.target});
      const auto [at, is_new] = first_of.try_emplace(key, static_cast<int32_t>(kept.size()));
      same[s] = at->second;
      if (is_new)
        kept.push_back(std::move(states_[s]));
      else
        changed = true;
    }
    const auto rename = [&](int32_t& s) { s = same[static_cast<size_t>(s)]; };
    for (State& state : kept) {
      for (Edge& edge : state.edges) rename(edge.target);
      for (Call& call : state.calls) rename(call.target);
    }
    for (int32_t& s : starts_) rename(s);
    states_ = std::move(kept);
  }
}

std::vector<char> PushdownAutomaton::nullable_rules() const {
  // The states that lead to an end of their rule without a byte.
  std::vector<char> empty(states_.size(), 0);
  for (size_t s = 0; s < states_.size(); ++s) empty[s] = states_[s].final ? 1 : 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t s = states_.size(); s-- > 0;) {
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

void PushdownAutomaton::check_left_recursion() const {
  const std::vector<char> nullable = nullable_rules();
  // A state leads, before a byte, to the starts of the rules it calls, and behind those that may be empty: that
  // must be no circle. 0: not seen, 1: on the way, 2: done.
  std::vector<char> seen(states_.size(), 0);
  const auto next_of = [&](int32_t s) {
    std::vector<int32_t> next;
    for (const Call& call : states_[static_cast<size_t>(s)].calls) next.push_back(start(call.rule));
    return next;
  };
  // Behind an empty call a circle is harmless unless it leads through a call's start: (a?)* is one state.
  const auto reached = [&](int32_t s) {
    std::vector<int32_t> all = {s};
    for (size_t i = 0; i < all.size(); ++i)
      for (const Call& call : states_[static_cast<size_t>(all[i])].calls)
        if (nullable[static_cast<size_t>(call.rule)] != 0 &&
            std::ranges::find(all, call.target) == all.end())
          all.push_back(call.target);
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
