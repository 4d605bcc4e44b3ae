// Intersection and complement of deterministic automata without calls and counters (Rabin and Scott
// 1959).
#pragma once

#include <span>
#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/compile_budget.h"

namespace trireme {

// Automaton of the texts that both accept; the start state is first. Some states may reach no final
// one. At most |a| |b| states, each charged to the budget.
std::vector<AutomatonState> intersection(std::span<const AutomatonState> a,
                                         std::span<const AutomatonState> b, CompileBudget& budget);

// Automaton of all byte strings that `a` does not accept. It has |a| + 1 states.
FiniteAutomaton complement_of(std::span<const AutomatonState> a, CompileBudget& budget);

}  // namespace trireme
