// Intersection and complement of deterministic automata without calls or counters (Rabin and Scott
// 1959).
#pragma once

#include <span>
#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/compile_budget.h"

namespace trireme {

// The texts that lead from the first state of both to a final one of both; the start first. Some
// states may reach no final one. At most |a| |b| states, each charged to the budget.
std::vector<AutomatonState> intersection(std::span<const AutomatonState> a,
                                         std::span<const AutomatonState> b, CompileBudget& budget);

// All other texts: those that do not lead from the first state to a final one. One state more.
FiniteAutomaton complement_of(std::span<const AutomatonState> a, CompileBudget& budget);

}  // namespace trireme
