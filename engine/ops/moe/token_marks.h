// Validity and segment of a router's tokens, from their global token indices (rows).
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// valid[t] = rows[begin + t] >= 0;  segments[t] = rows[begin + t] / length - first / length, by
// integer division, where first is the smallest row >= 0 of all T tokens: the number of the token's
// sequence in the micro-batch, for sequences of `length` tokens. segments[t] is 0 for padding, and
// everywhere if length = 0.
//   rows (T) int64, negative: padding; absent: every token is valid, in segment 0
//   valid (n) uint8, segments (n) int32, for tokens [begin, begin + n) of T
void mark_tokens(Ctx& ctx, const Tensor& valid, const Tensor& segments, const ConstTensor& rows,
                 int64_t begin, int64_t length);

}  // namespace trireme
