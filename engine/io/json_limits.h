// Limits of a JSON text that may be hostile.
#pragma once

#include <cstddef>

namespace trireme {

struct JsonLimits {
  int depth = 32;
  size_t keys_per_object = 1 << 20;
  // Whole numbers that fit neither int64_t nor uint64_t are kept as they are written, as a binary
  // value of their digits, which engine/text/jinja reads; else the nearest double.
  bool long_integers = false;
};

}  // namespace trireme
