// Validator of integer options without an upper bound. It replaces CLI11's CLI::PositiveNumber,
// whose error for an input such as 8G has the 309 digits of the largest double.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace trireme {

// Rejects values that are not integers >= `least`, which is 0 or 1. The message has the name of the
// option and the value.
CLI::Validator whole_number(int64_t least);

}  // namespace trireme
