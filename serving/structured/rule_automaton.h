// The automaton of one rule: expression -> nondeterministic automaton (Thompson 1968) ->
// deterministic one by its sets of states (Rabin and Scott 1959). Calls are symbols like bytes.
#pragma once

#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/grammar.h"

namespace trireme {

// The states, the start first; targets count from 0.
std::vector<AutomatonState> rule_automaton(const Grammar& grammar, Grammar::Node body,
                                           CompileBudget& budget);

}  // namespace trireme
