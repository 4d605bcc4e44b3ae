// Automaton of one rule: expression -> nondeterministic automaton (Thompson 1968) -> deterministic
// automaton by the subset construction (Rabin and Scott 1959). Calls are symbols like bytes.
//
// A repetition with many optional turns becomes a loop with a counter (StateCounter) if each byte
// decides whether the current turn continues, another one begins, or the loop ends. That holds in
// JSON, where a quote ends a string and a bracket an array. Otherwise each turn has its own states.
#pragma once

#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/grammar.h"

namespace trireme {

// States of the rule, the start state first; targets count from 0.
std::vector<AutomatonState> rule_automaton(const Grammar& grammar, const Grammar::Rule& rule,
                                           CompileBudget& budget);

}  // namespace trireme
