// y = x w^T of bfloat16 with matrix tiles (AMX): for more rows of x than gemm_rows.cpu.h can
// multiply while the weight arrives from memory, and too few to amortize the library's packing of
// the weight.
//
//   Tiles   eight registers of 16 rows of 64 bytes:
//             zero<t>(); load<t>(from, stride); store<t>(to, stride)   stride in bytes
//             dot<c, a, b>(): c[i][j] += sum over p < 32 of a[i][p] b[p / 2][2 j + p % 2]
//
// The weight's rows are the first operand, as stored; x is packed once into the layout of the
// second (pack_tile()), pairs of columns side by side. A product of a tile is 16 rows of w by 16
// rows of x over 32 columns, so its sums are y transposed. Two tiles of w by two of x use all eight
// registers; a panel, 32 rows of w, is read from memory for the first block of x and from the
// second-level cache for the others.
//
// Each y[i][j] is one sum in a fixed order of columns, for any other rows and any number of
// threads. Subnormal numbers count as zero.
#pragma once

#include "engine/core/parallel_for.h"
#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme::cpu {
namespace {  // each kernel compiles its own copy, for its instructions

// A tile register: rows, bfloat16 columns, bytes of a row.
inline constexpr int64_t kTileRows = 16, kTileColumns = 32, kTileBytes = 64;
inline constexpr int64_t kPanelRows = 2 * kTileRows;  // of w; also the rows of a block of x
inline constexpr int64_t kAheadColumns = 256;         // distance of the prefetch of w

constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Packs tile (block, step) of x: 16 rows from row 16 * block on, 32 columns from column 32 * step
// on; elements beyond x are zero.
void pack_tile(const Gemv<bf16>& a, int64_t block, int64_t step, bf16* to) {
  const int64_t rows = min_of(kTileRows, a.m - block * kTileRows);
  const int64_t columns = min_of(kTileColumns, a.k - step * kTileColumns);
  __builtin_memset(static_cast<void*>(to), 0, kTileRows * kTileBytes);
  for (int64_t j = 0; j < rows; ++j) {
    const bf16* const x = a.x + (block * kTileRows + j) * a.x_stride + step * kTileColumns;
    for (int64_t p = 0; p < columns; ++p) to[p / 2 * kTileColumns + 2 * j + p % 2] = x[p];
  }
}

// The last, incomplete step of rows first .. first + count of w: their columns from `column` on,
// padded with zeros.
struct LastStep {
  bf16 rows[kPanelRows][kTileColumns] = {};
  LastStep(const Gemv<bf16>& a, int64_t first, int64_t count, int64_t column) {
    for (int64_t r = 0; r < count; ++r)
      __builtin_memcpy(static_cast<void*>(rows[r]), a.w + (first + r) * a.w_stride + column,
                       static_cast<size_t>(a.k - column) * sizeof(bf16));
  }
};

// Adds one step: kGroups tiles of w by kBlocks of x. Strides in elements: from row to row of w, and
// from a packed tile of x to that of the next 16 rows.
template <class Tiles, int kGroups, int kBlocks>
void add_step(Tiles& tiles, const bf16* w, int64_t w_stride, const bf16* x, int64_t x_stride) {
  const int64_t row_bytes = w_stride * static_cast<int64_t>(sizeof(bf16));
  tiles.template load<4>(w, row_bytes);
  if constexpr (kGroups == 2) tiles.template load<5>(w + kTileRows * w_stride, row_bytes);
  tiles.template load<6>(x, kTileBytes);
  if constexpr (kBlocks == 2) tiles.template load<7>(x + x_stride, kTileBytes);
  tiles.template dot<0, 4, 6>();
  if constexpr (kGroups == 2) tiles.template dot<1, 5, 6>();
  if constexpr (kBlocks == 2) tiles.template dot<2, 4, 7>();
  if constexpr (kGroups == 2 && kBlocks == 2) tiles.template dot<3, 5, 7>();
}

// sums[i][j] = row 16 * block + i of x by row first + j of w, for i < 16 * kBlocks and j < 16 *
// kGroups. fetch: prefetch w.
template <class Tiles, int kGroups, int kBlocks>
void multiply_block(Tiles& tiles, const Gemv<bf16>& a, int64_t first, int64_t block, bool fetch,
                    float (&sums)[kPanelRows][kPanelRows]) {
  const int64_t steps = packed_columns(a.k) / kTileColumns, whole = a.k / kTileColumns;
  const int64_t x_stride = steps * kTileRows * kTileColumns;
  const auto* const x = reinterpret_cast<const bf16*>(a.packed_x) + block * x_stride;
  const bf16* const w = a.w + first * a.w_stride;
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
  for (int64_t s = 0; s < whole; ++s) {
    if (fetch && (s + 1) * kTileColumns + kAheadColumns <= a.k)
      for (int64_t r = 0; r < kGroups * kTileRows; ++r)
        __builtin_prefetch(w + r * a.w_stride + s * kTileColumns + kAheadColumns, 0, 2);
    add_step<Tiles, kGroups, kBlocks>(tiles, w + s * kTileColumns, a.w_stride,
                                      x + s * kTileRows * kTileColumns, x_stride);
  }
  if (whole < steps) {
    const LastStep last(a, first, kGroups * kTileRows, whole * kTileColumns);
    add_step<Tiles, kGroups, kBlocks>(tiles, last.rows[0], kTileColumns,
                                      x + whole * kTileRows * kTileColumns, x_stride);
  }
  alignas(64) float tile[kTileRows][kTileRows];
  const auto put = [&](int64_t group, int64_t of_x) {
    for (int64_t j = 0; j < kTileRows; ++j)
      for (int64_t i = 0; i < kTileRows; ++i)
        sums[of_x * kTileRows + i][group * kTileRows + j] = tile[j][i];
  };
  tiles.template store<0>(tile, kTileBytes);
  put(0, 0);
  if constexpr (kGroups == 2) tiles.template store<1>(tile, kTileBytes), put(1, 0);
  if constexpr (kBlocks == 2) tiles.template store<2>(tile, kTileBytes), put(0, 1);
  if constexpr (kGroups == 2 && kBlocks == 2) tiles.template store<3>(tile, kTileBytes), put(1, 1);
}

// Writes y for rows `row` .. `row` + rows of x and `count` rows of w from `column` on; skip: number
// of leading columns of the sums that belong to earlier rows of w.
template <class Out>
void finish_block(const Gemv<bf16>& a, int64_t row, int64_t rows, int64_t column, int64_t count,
                  int64_t skip, const float (&sums)[kPanelRows][kPanelRows]) {
  const auto* const bias = static_cast<const Out*>(a.bias);
  for (int64_t i = 0; i < rows; ++i) {
    Out* const y = static_cast<Out*>(a.y) + (row + i) * a.y_stride + column;
    for (int64_t j = 0; j < count; ++j) {
      float value = a.alpha * sums[i][skip + j];
      if (bias != nullptr) value += static_cast<float>(bias[column + j]);
      if (a.accumulate) value += static_cast<float>(y[j]);
      y[j] = static_cast<Out>(value);
    }
  }
}

// Rows first .. first + count of w by all rows of x. Fewer rows than a whole tile are computed
// together with the preceding ones, which exist: a.n is at least 16.
template <class Tiles>
void multiply_panel(Tiles& tiles, const Gemv<bf16>& a, int64_t first, int64_t count) {
  if (count > kTileRows && a.n < kPanelRows) {  // fewer than 32 rows exist
    multiply_panel(tiles, a, first, kTileRows);
    return multiply_panel(tiles, a, first + kTileRows, count - kTileRows);
  }
  const bool two = count > kTileRows;
  const int64_t from = min_of(first, a.n - (two ? kPanelRows : kTileRows));
  float sums[kPanelRows][kPanelRows];
  for (int64_t row = 0; row < a.m; row += kPanelRows) {
    const int64_t rows = min_of(kPanelRows, a.m - row), block = row / kTileRows;
    const bool both = rows > kTileRows, fetch = row == 0;
    if (two && both)
      multiply_block<Tiles, 2, 2>(tiles, a, from, block, fetch, sums);
    else if (two)
      multiply_block<Tiles, 2, 1>(tiles, a, from, block, fetch, sums);
    else if (both)
      multiply_block<Tiles, 1, 2>(tiles, a, from, block, fetch, sums);
    else
      multiply_block<Tiles, 1, 1>(tiles, a, from, block, fetch, sums);
    if (a.y_float32)
      finish_block<float>(a, row, rows, first, count, first - from, sums);
    else
      finish_block<bf16>(a, row, rows, first, count, first - from, sums);
  }
}

// As gemm_rows() of gemm_rows.cpu.h, for a.n of at least 16; a.packed_x is scratch of
// packed_tiles(m, k) bfloat16 numbers.
template <class Tiles>
void multiply_by_tiles(const Gemv<bf16>& a, int threads) {
  const int64_t steps = packed_columns(a.k) / kTileColumns;
  const int64_t blocks = (a.m + kTileRows - 1) / kTileRows;
  parallel_for(threads, blocks * steps, 8, [&a, steps](int64_t begin, int64_t end) {
    auto* const x = reinterpret_cast<bf16*>(a.packed_x);
    for (int64_t i = begin; i < end; ++i)
      pack_tile(a, i / steps, i % steps, x + i * kTileRows * kTileColumns);
  });
  const int64_t panels = (a.n + kPanelRows - 1) / kPanelRows;
  constexpr int64_t kPieceBytes = 1 << 17;  // of weight: amortizes the tile configuration
  const int64_t piece = kPieceBytes / (kPanelRows * a.k * static_cast<int64_t>(sizeof(bf16))) + 1;
  parallel_pieces(threads, panels, piece, [&a](int64_t begin, int64_t end) {
    Tiles tiles;
    for (int64_t p = begin; p < end; ++p)
      multiply_panel(tiles, a, p * kPanelRows, min_of(kPanelRows, a.n - p * kPanelRows));
  });
}

}  // namespace
}  // namespace trireme::cpu
