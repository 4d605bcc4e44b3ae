// A check of options that take a whole number without an upper bound. The library's own
// (CLI::PositiveNumber) tells whoever writes 8G the 309 digits of the largest double.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace trireme {

// Refuses what is not a whole number of at least `least`, which is 0 or 1, by the option's name and
// the value.
CLI::Validator whole_number(int64_t least);

}  // namespace trireme
