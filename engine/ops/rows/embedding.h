// Table lookup: y[t] = table[ids[t]] [+ y[t] if accumulate].
//   ids (T) int32 in [0, V)   table (V, C)   y (T, C) of the table's dtype
// An id outside the vocabulary throws Error with its position and value, before anything is
// written. On a GPU the host does not read the ids: the code that uploads them checks them
// (engine/ops/backend/index_check.h); an invalid id makes its row of y NaN and is skipped in
// d_table.
//
// A shard holds rows [first, first + V) of a vocabulary of `total` rows; ids are in [0, total), and
// rows of other shards count as zero: the sum of y over the shards is the whole lookup.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

struct TableShard {
  int64_t first = 0;  // row of the vocabulary that is row 0 of the table
  int64_t total = 0;  // 0: the table is the whole vocabulary
};

void embedding_forward(Ctx& ctx, const Tensor& y, const ConstTensor& table, const ConstTensor& ids,
                       bool accumulate, const TableShard& shard = {});

// d_table (V, C) float32 (float64 for float64): adds dy[t] to row ids[t], in the order of t, so the
// result does not depend on the number of threads. If not `accumulate`, all rows are zeroed first.
void embedding_backward(Ctx& ctx, const Tensor& d_table, const ConstTensor& dy,
                        const ConstTensor& ids, bool accumulate, const TableShard& shard = {});

}  // namespace trireme
