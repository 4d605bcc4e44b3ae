// Limits for parsing untrusted JSON text.
#pragma once

#include <cstddef>

namespace trireme {

struct JsonLimits {
  int depth = 32;  // nested objects and arrays
  size_t keys_per_object = 1 << 20;
  // True: an integer that fits neither int64_t nor uint64_t becomes a JSON binary value of its
  // digits, which engine/text/jinja reads. False: it becomes the nearest double.
  bool long_integers = false;
};

}  // namespace trireme
