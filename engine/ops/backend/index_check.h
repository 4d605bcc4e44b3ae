// Range check of table indices: untrusted integers must never become an address.
#pragma once

#include "engine/core/tensor.h"

namespace trireme {

// Throws Error naming the position and the value of the first element of `indices` (int32,
// contiguous, host memory) outside [0, limit); the value `ignored`, if given, is allowed. If limit
// is 0 and all indices are 0, the message names only the operand.
void check_indices(const char* op, const char* operand, const ConstTensor& indices, int64_t limit);
void check_indices(const char* op, const char* operand, const ConstTensor& indices, int64_t limit,
                   int32_t ignored);

}  // namespace trireme
