// Which part of a logical tensor's dimension a rank holds.
#pragma once

#include "parallel/layout.h"
#include "parallel/parameter_store.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct DimSlice {
  int64_t begin = 0;
  int64_t end = 0;
  int copies = 1;  // ranks of the group that hold this slice, and the number of this one
  int copy = 0;
  PartialSum partial = PartialSum::kNone;
  int64_t size() const { return end - begin; }
};

// All n, held by one rank.
DimSlice whole_slice(int64_t n);
// Slices as equal as possible, larger ones first: any n over any number of ranks.
DimSlice even_slice(int64_t n, const Place& place);
// All n on every tensor-parallel rank. With sequence parallelism each saw other tokens.
DimSlice replicated_slice(int64_t n, const Layout& layout);
// Heads of `width` elements each: equal numbers of heads, or where there are fewer heads than
// ranks, each held by size / heads neighbours. heads must divide the size or be divided by it.
DimSlice head_slice(int64_t heads, int64_t width, const Place& tp);

// "" or why the model's heads cannot be shared by `tp` ranks.
std::string head_problem(const ModelConfig& config, int tp);

// The box of a matrix (rows, columns) or, without columns, of a vector.
TensorBox box_of(const DimSlice& rows);
TensorBox box_of(const DimSlice& rows, const DimSlice& columns);

}  // namespace trireme
