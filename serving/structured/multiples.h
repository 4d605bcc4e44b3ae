// Multiples of a decimal number: an exact check, and a finite automaton over digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/structured/automaton_state.h"

namespace trireme {

// Positive number numerator / 10^decimals, with the smallest possible decimals >= 0.
struct Factor {
  int64_t numerator = 1;
  int decimals = 0;
};

// Reads a JSON number. nullopt: zero, negative, or more than 17 digits or decimals (zeros at the
// end of a fraction do not count).
std::optional<Factor> read_factor(const std::string& text);
// Factor whose multiples are the integers among the multiples of `factor`.
Factor integer_factor(const Factor& factor);
// True if a JSON number is exactly a multiple of the factor.
bool is_multiple(const std::string& number, const Factor& factor);

// Automaton of the numbers (sign, digits, fraction) that are multiples of the factor. Must be
// intersected with a grammar of numbers without exponents, whose other rules, such as those on
// leading zeros, it does not enforce. A state is the number so far, times 10^decimals, modulo the
// numerator, with the number of digits after the point. For a factor without decimals, remainders
// with the same continuations share a state: multiples of 1000 need 4 states before the point.
// nullopt: more than max_states states.
std::optional<FiniteAutomaton> multiples_automaton(const Factor& factor, size_t max_states);

}  // namespace trireme
