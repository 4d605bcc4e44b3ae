// Grammars of decimal numbers within exact bounds.
#pragma once

#include <string>

#include "serving/structured/grammar.h"

namespace trireme {

// Bounds of a number as JSON numbers, such as "-12.5"; empty: unbounded.
struct NumberBounds {
  std::string least = {}, most = {};
  bool min_excluded = false, max_excluded = false;  // least or most itself is not allowed
  bool none() const { return least.empty() && most.empty(); }
};

// Range of the integers of up to 18 digits within bounds that need not be integers themselves;
// least > most: empty. InputError for a bound with more than 17 digits after the point, or beyond
// all integers of 18 digits.
struct IntegerRange {
  int64_t least = 0, most = 0;
};
IntegerRange integer_range(const NumberBounds& bounds);
// Grammar of the integers of that range. InputError as integer_range(), and if the range is empty.
Grammar::Node bounded_integer(Grammar& grammar, const NumberBounds& bounds);
// Grammar of numbers without exponent, with up to 18 digits before and up to 17 after the point.
// InputError for a bound with more digits after the point, or beyond all such numbers. If the
// bounds exclude each other, the grammar has no texts.
Grammar::Node bounded_number(Grammar& grammar, const NumberBounds& bounds);

}  // namespace trireme
