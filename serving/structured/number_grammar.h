// Decimal numbers between bounds, exactly.
#pragma once

#include <string>

#include "serving/structured/grammar.h"

namespace trireme {

// The bounds of a number, as decimals: "-12.5"; empty: none.
struct NumberBounds {
  std::string least = {}, most = {};
  bool least_excluded = false, most_excluded = false;
  bool none() const { return least.empty() && most.empty(); }
};

// Range of the integers of up to 18 digits within the bounds, which need not be integers; least >
// most: there are none. InputError for a bound that leaves no integers of 18 digits.
struct IntegerRange {
  int64_t least = 0, most = 0;
};
IntegerRange integer_range(const NumberBounds& bounds);
// The integers of that range.
Grammar::Node bounded_integer(Grammar& grammar, const NumberBounds& bounds);
// Numbers without exponent of up to 18 digits before the point and up to 17 behind it. InputError
// for bounds with more behind it, and for those that leave none of these.
Grammar::Node bounded_number(Grammar& grammar, const NumberBounds& bounds);

}  // namespace trireme
