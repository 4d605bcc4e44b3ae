// Limits for parsing untrusted JSON text.
#pragma once

#include <cstddef>

namespace trireme {

struct JsonLimits {
  int depth = 32;
  size_t keys_per_object = 1 << 20;
  // True: whole numbers that fit neither int64_t nor uint64_t are kept as a binary value of their
  // digits, which engine/text/jinja reads. False: they become the nearest double.
  bool long_integers = false;
};

}  // namespace trireme
