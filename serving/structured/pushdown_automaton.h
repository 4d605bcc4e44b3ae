// Pushdown automaton of a grammar: one deterministic finite automaton per rule, over bytes and
// calls of rules (recursive transition network: Woods 1970). A text belongs to the grammar iff it
// leads from the start of the root rule to one of its final states. A call consumes a text of the
// called rule.
//
// Every state that can be reached from the start of the root rule can reach a final state of its
// own rule, so that every prefix that can be read has a valid continuation. No rule calls itself
// before it has read a byte.
#pragma once

#include <cstdint>
#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/grammar.h"

namespace trireme {

class PushdownAutomaton {
 public:
  using State = AutomatonState;
  using Edge = State::Edge;
  using Call = State::Call;

  // InputError if the grammar is too large, has no text at all, or is left-recursive. Rules without
  // a body have no text.
  PushdownAutomaton(const Grammar& grammar, int32_t root, CompileBudget& budget);

  const std::vector<State>& states() const { return states_; }
  int32_t start(int32_t rule) const { return starts_[static_cast<size_t>(rule)]; }
  int32_t root() const { return root_; }   // start state of the root rule
  bool counts() const { return counts_; }  // the StateCounter of some state is not kNone
  // True for a final state without continuation.
  bool ends(int32_t state) const {
    const State& s = states_[static_cast<size_t>(state)];
    return s.final && s.edges.empty() && s.calls.empty();
  }
  // Bytes of the shortest text from a state to the end of its rule; kNeverEnds (shortest_texts.h)
  // if there is none.
  int64_t bytes_to_end(int32_t state) const { return bytes_to_end_[static_cast<size_t>(state)]; }

 private:
  void remove_useless();
  void merge_equal(CompileBudget& budget);
  void keep_first(const std::vector<int32_t>& same);
  void check_left_recursion(CompileBudget& budget) const;
  std::vector<char> nullable_rules(CompileBudget& budget) const;

  std::vector<State> states_;
  std::vector<int64_t> bytes_to_end_;
  std::vector<int32_t> starts_;  // by rule
  int32_t root_ = 0;
  bool counts_ = false;
};

}  // namespace trireme
