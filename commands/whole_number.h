// Check for options that take an integer without an upper bound. The library's own check
// (CLI::PositiveNumber) reports an input such as 8G with the 309 digits of the largest double.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace trireme {

// Rejects values that are not integers >= `least`, which is 0 or 1; the message has the option's
// name and the value.
CLI::Validator whole_number(int64_t least);

}  // namespace trireme
