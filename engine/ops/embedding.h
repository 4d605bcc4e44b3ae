// Table lookup: y[t] = table[ids[t]] [+ y[t] if accumulate].
//   ids (T) int32 in [0, V)   table (V, C)   y (T, C) of the table's dtype
// Ids outside the table throw Error naming the position and the id, before anything is written.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void embedding_forward(Ctx& ctx, const Tensor& y, const ConstTensor& table, const ConstTensor& ids,
                       bool accumulate);

// d_table (V, C) float32 (float64 for float64): adds dy[t] to row ids[t], in the order of t, so the
// result does not depend on the number of threads. With accumulate = false all rows are zeroed first.
void embedding_backward(Ctx& ctx, const Tensor& d_table, const ConstTensor& dy,
                        const ConstTensor& ids, bool accumulate);

}  // namespace trireme
