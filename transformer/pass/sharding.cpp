#include "transformer/pass/sharding.h"

#include "parallel/comm/collectives/collectives.h"

namespace trireme {

DimSlice whole_slice(int64_t n) {
  DimSlice slice;
  slice.end = n;
  return slice;
}

DimSlice even_slice(int64_t n, const GroupCoord& coord) {
  const Piece piece = piece_of(n, coord.size, coord.index);
  DimSlice slice;
  slice.begin = piece.begin;
  slice.end = piece.end;
  return slice;
}

DimSlice replicated_slice(int64_t n, const Layout& layout) {
  DimSlice slice = whole_slice(n);
  slice.copies = layout.tp.size;
  slice.copy = layout.tp.index;
  if (layout.sequence_parallel) slice.partial = PartialSum::kTensor;
  return slice;
}

DimSlice head_slice(int64_t heads, int64_t width, const GroupCoord& tp) {
  TRIREME_CHECK(heads % tp.size == 0 || tp.size % heads == 0, heads,
                " heads cannot be divided among ", tp.size, " ranks");
  const int64_t copies = heads >= tp.size ? 1 : tp.size / heads;
  const int64_t mine = heads >= tp.size ? heads / tp.size : 1;
  DimSlice slice;
  slice.begin = tp.index / copies * mine * width;
  slice.end = slice.begin + mine * width;
  slice.copies = static_cast<int>(copies);
  slice.copy = static_cast<int>(tp.index % copies);
  if (copies > 1) slice.partial = PartialSum::kKvCopies;
  return slice;
}

std::string head_problem(const ModelConfig& config, int tp) {
  const int64_t heads = config.num_heads, kv = config.num_kv_heads;
  if (heads % tp != 0)
    return concat(tp, " does not divide the model's ", heads,
                  " attention heads: a rank holds whole heads");
  if (kv % tp != 0 && tp % kv != 0)
    return concat(tp, " is neither a divisor nor a multiple of the model's ", kv,
                  " key/value heads");
  return "";
}

TensorBox box_of(const DimSlice& rows) { return {{rows.begin}, {rows.size()}}; }

TensorBox box_of(const DimSlice& rows, const DimSlice& columns) {
  return {{rows.begin, columns.begin}, {rows.size(), columns.size()}};
}

}  // namespace trireme
