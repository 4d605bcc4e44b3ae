// State of a pushdown automaton (pushdown_automaton.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Meaning of a configuration's count (grammar_states.h) in this state. With a count, a repetition
// needs one set of states for all of its turns (iterations); without one, each turn has its own
// states.
enum class StateCounter : uint8_t {
  kNone,    // unused: 0
  kLoop,    // turns begun so far; between turns: another one may begin, or the loop ends
  kInLoop,  // turns begun so far; inside a turn
  kBytes,   // bytes of the rule read so far
};

struct AutomatonState {
  struct Edge {
    uint8_t first = 0, last = 0;  // bytes, inclusive
    bool begins_turn = false;     // kLoop: the byte begins another turn; otherwise false
    int32_t target = 0;           // index of a state
  };
  struct Call {
    int32_t rule = 0, target = 0;  // target: state after the text of the rule
  };
  std::vector<Edge> edges;  // ascending, disjoint byte ranges
  std::vector<Call> calls;  // one per rule
  bool final = false;
  StateCounter counter = StateCounter::kNone;
  int32_t max_count = 0;   // maximum of the count: turns, or bytes of the rule
  int32_t free_count = 0;  // an edge is allowed if the count after it is at most this
};

using FiniteAutomaton = std::vector<AutomatonState>;  // start state first

}  // namespace trireme
