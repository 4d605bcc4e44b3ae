#include "transformer/sharding.h"

#include "parallel/comm/collectives.h"

namespace trireme {

DimSlice whole_slice(int64_t n) {
  DimSlice slice;
  slice.end = n;
  return slice;
}

DimSlice even_slice(int64_t n, const Place& place) {
  const Piece piece = piece_of(n, place.size, place.index);
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

DimSlice head_slice(int64_t heads, int64_t width, const Place& tp) {
  TRIREME_CHECK(heads % tp.size == 0 || tp.size % heads == 0, heads, " heads over ", tp.size,
                " ranks");
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

TensorBox box_of(const DimSlice& rows) { return {{rows.begin}, {rows.size()}}; }

TensorBox box_of(const DimSlice& rows, const DimSlice& columns) {
  return {{rows.begin, columns.begin}, {rows.size(), columns.size()}};
}

}  // namespace trireme
