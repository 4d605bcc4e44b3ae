// Automaton of one rule: expression -> nondeterministic automaton (Thompson 1968) -> deterministic
// automaton by the subset construction (Rabin and Scott 1959). Calls are symbols like bytes.
//
// A repetition with many optional turns (GrammarLimits::min_counted) becomes a loop with a counter
// (StateCounter) if each byte decides whether the current turn continues, another one begins, or
// the loop ends. That holds in JSON, where a quote ends a string and a bracket an array. If it
// fails for one repetition of a rule, no repetition of that rule is counted: each turn has its own
// states. The same applies to a rule that is an intersection or has max_bytes.
#pragma once

#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/grammar.h"

namespace trireme {

// States of the rule, the start state first; targets are indices into the result. A rule without a
// body has one state, which is not final. Above the budget InputError.
std::vector<AutomatonState> rule_automaton(const Grammar& grammar, const Grammar::Rule& rule,
                                           CompileBudget& budget);

}  // namespace trireme
