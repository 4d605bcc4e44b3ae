// State of a pushdown automaton (pushdown_automaton.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Meaning of the count of a configuration (grammar_states.h) in this state. Counted repetitions
// need one state for all their turns, where a chain of states would need one for each.
enum class StateCounter : uint8_t {
  kNone,    // nothing: it is 0
  kLoop,    // turns of a repetition that have begun; another may begin here, or the loop is left
  kInLoop,  // the same, inside of a turn
  kBytes,   // bytes of the rule that have been read
};

struct AutomatonState {
  struct Edge {
    uint8_t first = 0, last = 0;  // bytes
    bool begins_turn = false;     // of kLoop
    int32_t target = 0;
  };
  struct Call {
    int32_t rule = 0, target = 0;
  };
  std::vector<Edge> edges;  // ascending, disjoint
  std::vector<Call> calls;  // of different rules
  bool final = false;
  StateCounter counter = StateCounter::kNone;
  int32_t max_count = 0;
  int32_t free_count = 0;  // up to here the count forbids no edge
};

using FiniteAutomaton = std::vector<AutomatonState>;  // the start first

}  // namespace trireme
