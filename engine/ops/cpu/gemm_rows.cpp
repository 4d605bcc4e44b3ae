#include "engine/ops/cpu/gemm_rows.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/steps.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kLane = kLanes<float>;
constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth a thread

constexpr int kGroups = 4;     // tiles in a panel
constexpr int64_t kRows = 16;  // of x, that have sums at a time

// A tile's rows of x and of the weight (a group). Its sums and their operands fit into the
// registers, and there are as many as hide the latency of the multiply-add. Measured with AVX2,
// data in the first-level cache: 2 x 5 reaches the peak, 3 x 4 spills, which counts where the
// weight comes from there too, 4 x 2 waits for its sums.
template <int kRowsOfX, int kRowsOfWeight>
struct Tile {
  static constexpr int kTileRows = kRowsOfX, kGroup = kRowsOfWeight;
};
using Tile1 = Tile<1, 8>;
#if defined(TRIREME_ISA_avx512)
using Tile3 = Tile<3, 5>;
using TileMany = Tile<4, 5>;
#else
using Tile3 = Tile<3, 4>;
using TileMany = Tile<2, 5>;
#endif

// Columns of a piece: of some rows as many as stay in the first-level cache. Few rows are not
// divided: they are loaded once for a group, from the second level if need be, and whoever fetches
// the weight has long ways to go ahead.
constexpr int64_t piece_of(int64_t rows) { return rows <= 4 ? int64_t{1} << 40 : 256; }

using Floats = Vec<float>;
template <int kGroup>
using Sums = Floats[kRows][kGroup];

TRIREME_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Row i of x in float32. Of `rows` rows that have sums together piece after piece lies; within one,
// row after row.
template <class T>
void pack_row(const Gemv<T>& a, int64_t i) {
  const int64_t columns = packed_columns(a.k), first = i / kRows * kRows;
  const int64_t rows = smaller(kRows, a.m - first), width = piece_of(rows);
  float* const block = a.x32 + first * columns;
  const T* const x = a.x + i * a.x_stride;
  for (int64_t c = 0; c < columns; c += kStep) {
    const int64_t piece = c / width * width;
    float* const to =
        block + piece * rows + (i - first) * smaller(width, columns - piece) + c - piece;
    T step[kStep];
    const T* from = x + c;
    if (c + kStep > a.k) {
      pad_step(step, from, a.k - c);
      from = step;
    }
    store(to, load_half_step<0>(from));
    store(to + kLane, load_half_step<1>(from));
  }
}

template <int kHalf, int M, int N, class T>
TRIREME_INLINE void add_half_step(Floats (&sums)[M][N], const T* w, int64_t w_stride,
                                  const float* x, int64_t x_stride) {
  Floats rows[M];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) rows[i] = load(x + i * x_stride + kHalf * kLane);
#pragma GCC unroll 8
  for (int r = 0; r < N; ++r) {
    const Floats weights = load_half_step<kHalf>(w + r * w_stride);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) sums[i][r] = multiply_add(weights, rows[i], sums[i][r]);
  }
}

// sums[i][r] += products of row i of x and row r of w, in whole steps. next: what is to be read
// after this, of the same shape as w; or nullptr.
template <int M, int N, class T>
void add_tile(Floats (*sums)[N], const T* w, int64_t w_stride, const float* x, int64_t x_stride,
              int64_t columns, const T* next) {
  Floats here[M][N];  // in registers
  for (int i = 0; i < M; ++i)
    for (int r = 0; r < N; ++r) here[i][r] = sums[i][r];
  for (int64_t j = 0; j < columns; j += kStep) {
    if (next != nullptr && j * static_cast<int64_t>(sizeof(T)) % 64 == 0)
#pragma GCC unroll 8
      for (int r = 0; r < N; ++r) __builtin_prefetch(next + r * w_stride + j, 0, 2);
    add_half_step<0>(here, w + j, w_stride, x + j, x_stride);
    add_half_step<1>(here, w + j, w_stride, x + j, x_stride);
  }
  for (int i = 0; i < M; ++i)
    for (int r = 0; r < N; ++r) sums[i][r] = here[i][r];
}

template <int kTileRows, int N, class T>
void add_tiles(Floats (*sums)[N], int64_t rows, const T* w, int64_t w_stride, const float* x,
               int64_t x_stride, int64_t columns, const T* next) {
  int64_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows, next = nullptr)
    add_tile<kTileRows, N>(sums + i, w, w_stride, x + i * x_stride, x_stride, columns, next);
  for (; i < rows; ++i, next = nullptr)
    add_tile<1, N>(sums + i, w, w_stride, x + i * x_stride, x_stride, columns, next);
}

// One row of the weight, whose sums are number r of each row of x.
template <int kTileRows, int kGroup, class T>
void add_row(Sums<kGroup>& sums, int64_t r, int64_t rows, const T* w, const float* x,
             int64_t x_stride, int64_t columns) {
  Sums<1> one;
  for (int64_t i = 0; i < rows; ++i) one[i][0] = sums[i][r];
  add_tiles<kTileRows, 1, T>(one, rows, w, 0, x, x_stride, columns, nullptr);
  for (int64_t i = 0; i < rows; ++i) sums[i][r] = one[i][0];
}

// At most a group's rows and a piece of their columns.
template <int kTileRows, int kGroup, class T>
void add_group(Sums<kGroup>& sums, int64_t rows, const T* w, int64_t w_stride, int64_t n,
               const float* x, int64_t x_stride, int64_t columns, const T* next) {
  const int64_t whole = columns / kStep * kStep;
  if (n == kGroup)
    add_tiles<kTileRows, kGroup>(sums, rows, w, w_stride, x, x_stride, whole, next);
  else
    for (int64_t r = 0; r < n; ++r)
      add_row<kTileRows, kGroup>(sums, r, rows, w + r * w_stride, x, x_stride, whole);
  if (whole == columns) return;
  T rest[kStep];
  for (int64_t r = 0; r < n; ++r) {
    pad_step(rest, w + r * w_stride + whole, columns - whole);
    add_row<kTileRows, kGroup>(sums, r, rows, static_cast<const T*>(rest), x + whole, x_stride,
                               kStep);
  }
}

// Not inlined: where each kind of tile had this arithmetic for itself, the compiler might fuse a
// product and a sum in one of them and not in another.
template <class Out>
[[gnu::noinline]] void finish(const auto& a, int64_t row, int64_t rows, int64_t column,
                              int64_t columns, const Floats* sums, int64_t group) {
  const auto* bias = static_cast<const Out*>(a.bias);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      Out* y = static_cast<Out*>(a.y) + (row + i) * a.y_stride + column + j;
      float value = a.alpha * sum(sums[i * group + j]);
      if (bias != nullptr) value += load_partial(bias + column + j, 1)[0];
      if (a.accumulate) value += load_partial(y, 1)[0];
      store_partial(y, 1, splat<Floats>(value));
    }
}

// Rows `row` .. `row` + rows of x and j .. j + n of the weight, at most a panel.
template <class Tile, class T, class Out>
void panel(const Gemv<T>& a, int64_t row, int64_t rows, int64_t j, int64_t n) {
  constexpr int kGroup = Tile::kGroup;
  Sums<kGroup> sums[kGroups];
  const int64_t groups = (n + kGroup - 1) / kGroup;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < rows; ++i)
      for (Floats& one : sums[g][i]) one = Floats{};
  const int64_t columns = packed_columns(a.k), piece = piece_of(rows);
  for (int64_t c = 0; c < a.k; c += piece) {
    const float* const x = a.x32 + row * columns + c * rows;
    const int64_t width = smaller(piece, a.k - c), x_stride = smaller(piece, columns - c);
    for (int64_t g = 0; g < groups; ++g) {
      const T* const w = a.w + (j + g * kGroup) * a.w_stride + c;
      const T* next = nullptr;
      if (row == 0 && g + 1 < groups)  // for later rows of x it is there
        next = w + kGroup * a.w_stride;
      else if (row == 0 && c + piece < a.k)
        next = a.w + j * a.w_stride + c + piece;
      else if (row == 0 && j + n + kGroup <= a.n)  // most likely this thread's
        next = a.w + (j + n) * a.w_stride;
      add_group<Tile::kTileRows, kGroup>(sums[g], rows, w, a.w_stride,
                                         smaller(kGroup, n - g * kGroup), x, x_stride, width, next);
    }
  }
  for (int64_t g = 0; g < groups; ++g)
    finish<Out>(a, row, rows, j + g * kGroup, smaller(kGroup, n - g * kGroup), sums[g][0], kGroup);
}

template <class Tile, class T, class Out>
void rows_into(const Gemv<T>& a, int64_t begin, int64_t end) {
  constexpr int64_t kPanel = int64_t{kGroups} * Tile::kGroup;
  for (int64_t j = begin; j < end; j += kPanel)
    for (int64_t row = 0; row < a.m; row += kRows)
      panel<Tile, T, Out>(a, row, smaller(kRows, a.m - row), j, smaller(kPanel, end - j));
}

template <class Tile, class T>
void multiply(const Gemv<T>& a, int64_t row_bytes, int threads) {
  constexpr int64_t kGroup = Tile::kGroup;
  // A piece is whole panels, so that only the last one has less.
  const int64_t panels = kGrainBytes / (kGroups * kGroup * row_bytes * a.m) + 1;
  parallel_pieces(threads, (a.n + kGroup - 1) / kGroup, panels * kGroups,
                  [&a](int64_t begin, int64_t end) {
                    begin *= kGroup;
                    end = smaller(end * kGroup, a.n);
                    if (a.y_float32)
                      rows_into<Tile, T, float>(a, begin, end);
                    else
                      rows_into<Tile, T, T>(a, begin, end);
                  });
}

}  // namespace

template <class T>
void gemm_rows(const Gemv<T>& a, int threads) {
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  parallel_for(threads, a.m, kGrainBytes / row_bytes + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_row(a, i);
  });
  switch (a.m) {
    case 1: return multiply<Tile1>(a, row_bytes, threads);
    case 3: return multiply<Tile3>(a, row_bytes, threads);
    default: return multiply<TileMany>(a, row_bytes, threads);
  }
}

template void gemm_rows<float>(const Gemv<float>&, int);
template void gemm_rows<bf16>(const Gemv<bf16>&, int);
template void gemm_rows<f16>(const Gemv<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
