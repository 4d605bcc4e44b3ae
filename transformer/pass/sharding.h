// Shards of logical tensors: the slice of a dimension that a rank holds.
#pragma once

#include "parallel/layout.h"
#include "parallel/parameter_store.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct DimSlice {
  int64_t begin = 0;
  int64_t end = 0;
  int copies = 1;  // ranks of the group that hold this slice
  int copy = 0;    // index of this rank among them
  PartialSum partial = PartialSum::kNone;
  int64_t size() const { return end - begin; }
};

// The whole dimension of size n, held by one rank.
DimSlice whole_slice(int64_t n);
// Slice of a division as equal as possible, for any n and any number of ranks: sizes differ by at
// most one (piece_of() in parallel/comm/collectives/collectives.h).
DimSlice even_slice(int64_t n, const GroupCoord& coord);
// The whole dimension, on every tensor-parallel rank. With sequence parallelism the gradients are
// partial sums, because the ranks have different tokens.
DimSlice replicated_slice(int64_t n, const Layout& layout);
// Slice of heads with `width` elements each: equal numbers of heads per rank or, with fewer heads
// than ranks, each head on tp.size / heads consecutive ranks, whose gradients are then partial
// sums. One of heads and tp.size must divide the other (Error).
DimSlice head_slice(int64_t heads, int64_t width, const GroupCoord& tp);

// Returns why the model's heads cannot be divided over `tp` ranks, or "" if they can.
std::string head_problem(const ModelConfig& config, int tp);

// Boxes of a vector and of a matrix.
TensorBox box_of(const DimSlice& rows);
TensorBox box_of(const DimSlice& rows, const DimSlice& columns);

}  // namespace trireme
