// Multiples of a decimal number: check, and finite automaton over digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/structured/automaton_state.h"

namespace trireme {

// A number above zero: numerator / 10^decimals, with as few decimals as it has.
struct Factor {
  int64_t numerator = 1;
  int decimals = 0;
};

// text: as JSON spells numbers. Absent: zero, negative, or of more than 17 digits.
std::optional<Factor> read_factor(const std::string& text);
// The factor whose multiples are the integers among the multiples of `factor`.
Factor integer_factor(const Factor& factor);
// Whether a number, as JSON spells it, is a multiple of the factor, exactly.
bool is_multiple(const std::string& number, const Factor& factor);

// Texts of a sign, digits and a fraction whose number is a multiple, to be intersected with a
// grammar of numbers without exponents, whose other rules (leading zeros) it does not enforce. The
// state is the number so far modulo the numerator; for a factor without decimals only as far as
// later digits depend on it, so that a multiple of 1000 needs 4 states. Absent: more states than
// max_states.
std::optional<FiniteAutomaton> multiples_automaton(const Factor& factor, size_t max_states);

}  // namespace trireme
