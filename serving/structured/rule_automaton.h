// The automaton of one rule: expression -> nondeterministic automaton (Thompson 1968) ->
// deterministic one by its sets of states (Rabin and Scott 1959). Calls are symbols like bytes.
//
// Repetitions with many optional turns are loops with a counter (StateCounter) where a byte always
// decides between another turn, its inside and what follows the loop: for texts of JSON, as a quote
// ends a string and a bracket an array. Elsewhere each turn has states of its own.
#pragma once

#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/grammar.h"

namespace trireme {

// The states, the start first; targets count from 0.
std::vector<AutomatonState> rule_automaton(const Grammar& grammar, const Grammar::Rule& rule,
                                           CompileBudget& budget);

}  // namespace trireme
