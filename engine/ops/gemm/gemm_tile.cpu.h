// Tiles of y = x w^T for any number of rows of x (gemm_rows.cpu.h), over one of two kinds of
// products: multiply-adds of widened operands, or dot products of bfloat16 (gemm_dot.cpu.h).
//
//   Products  Weight, Row: types of w and of packed x; Operand: a register of either
//             kParts: operations per step; weight<part>(w), row<part>(x): their operands
//             add(w, x, sum): sum + products, lane by lane
//             pack(to, step): packs one step of x
//
// A tile is some rows of x by some rows of the weight (a group). Its sums and their operands fit
// into the registers, and there are enough sums to hide the latency of an operation. All tiles of a
// block of x and of neighbouring groups (a panel) add up one piece of the columns before the next
// piece: the block's piece stays in the first-level cache, and the weight is read from memory once.
#pragma once

#include "engine/core/parallel_for.h"
#include "engine/ops/backend/steps.cpu.h"
#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {  // each kernel compiles its own copy, for its instructions

using Floats = Vec<float>;

// Tiles of a block of at most kRows rows of x and of a panel of kPanel rows of the weight. A tile
// is kTile rows of x by kGroup rows of the weight; a panel has kGroups groups. Rows left over by
// whole tiles become tiles of one row.
template <int kBlockRows, int kTileRows, int kGroupRows, int kGroupCount>
struct TileShape {
  static constexpr int kRows = kBlockRows, kTile = kTileRows, kGroup = kGroupRows;
  static constexpr int kGroups = kGroupCount, kPanel = kGroup * kGroups;
};

// Calls f.operator()<TileShape<...>>() for a block of `rows` rows. Measured with the block's piece
// in the first-level cache (rows of x by rows of the weight): with AVX-512 (32 registers) 8 x 3
// reaches 74 % of the peak for bfloat16, which is widened, and 84 % for float32. With AVX2 (16
// registers) 2 x 5 reaches the peak, 3 x 4 spills, which matters if the weight is in that cache
// too, 4 x 2 waits for its sums.
//
// kBlockRows: maximum number of rows of a block; kPieceColumns: columns of a piece.
#if defined(TRIREME_ISA_avx512)
inline constexpr int64_t kBlockRows = 8, kPieceColumns = 512;
template <class F>
TRIREME_INLINE void with_shape(int64_t rows, F&& f) {
  switch (rows) {
    case 1: return f.template operator()<TileShape<1, 1, 8, 3>>();
    case 2: return f.template operator()<TileShape<2, 2, 8, 3>>();
    case 3: return f.template operator()<TileShape<3, 3, 8, 3>>();
    case 4: return f.template operator()<TileShape<4, 4, 6, 4>>();
    case 5: return f.template operator()<TileShape<5, 5, 4, 6>>();
    case 6: return f.template operator()<TileShape<6, 6, 4, 6>>();
    case 7: return f.template operator()<TileShape<7, 7, 3, 8>>();
    default: return f.template operator()<TileShape<8, 8, 3, 8>>();
  }
}
#else
inline constexpr int64_t kBlockRows = 16, kPieceColumns = 256;
template <class F>
TRIREME_INLINE void with_shape(int64_t rows, F&& f) {
  switch (rows) {
    case 1: return f.template operator()<TileShape<1, 1, 8, 4>>();
    case 3: return f.template operator()<TileShape<3, 3, 4, 4>>();
    default: return f.template operator()<TileShape<16, 2, 5, 4>>();
  }
}
#endif
inline constexpr int kMaxPanel = 32;  // at least kPanel of every shape

// Few rows of x are not split into pieces: they are loaded once per group, possibly from the
// second-level cache, and the hardware prefetcher sees long streams of the weight.
constexpr int64_t piece_columns(int64_t rows) {
  return rows <= 3 ? int64_t{1} << 40 : kPieceColumns;
}
inline constexpr int64_t kGroupsAhead = 4;  // groups prefetched meanwhile, for split rows

TRIREME_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows per block, so that the blocks of m rows are as equal as possible; the last has the rest.
TRIREME_INLINE int64_t block_rows(int64_t m) {
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  return (m + blocks - 1) / blocks;
}

// Packs row i of x. A block is stored step by step: one step of each of its rows, then the next
// step. Columns after the last are 0.
template <class Products, class T>
void pack_row(const Gemv<T>& a, int64_t i) {
  const int64_t of_block = block_rows(a.m), first = i / of_block * of_block;
  const int64_t rows = smaller(of_block, a.m - first);
  auto* to = reinterpret_cast<typename Products::Row*>(a.packed_x) + first * packed_columns(a.k) +
             (i - first) * kStep;
  const T* const x = a.x + i * a.x_stride;
  for (int64_t c = 0; c < a.k; c += kStep, to += rows * kStep) {
    T step[kStep];
    const T* from = x + c;
    if (c + kStep > a.k) {
      pad_step(step, from, a.k - c);
      from = step;
    }
    Products::pack(to, from);
  }
}

template <class Products, int kPart, int M, int N>
TRIREME_INLINE void add_part(Floats (&sums)[M][N], const typename Products::Weight* w,
                             int64_t w_stride, const typename Products::Row* x) {
  if constexpr (N <= M) {
    typename Products::Operand weights[N];
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) weights[r] = Products::template weight<kPart>(w + r * w_stride);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      auto row = Products::template row<kPart>(x + i * kStep);
#if defined(TRIREME_ISA_avx512) && !defined(__clang__)
      asm("" : "+v"(row));  // else GCC 12 reloads it for each row of the weight
#endif
#pragma GCC unroll 8
      for (int r = 0; r < N; ++r) sums[i][r] = Products::add(weights[r], row, sums[i][r]);
    }
  } else {
    typename Products::Operand rows[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) rows[i] = Products::template row<kPart>(x + i * kStep);
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) {
      const auto weights = Products::template weight<kPart>(w + r * w_stride);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) sums[i][r] = Products::add(weights, rows[i], sums[i][r]);
    }
  }
}

// sums[i][r] += products of row i of x and row r of w, in whole steps; x_step: distance between
// steps of packed x, in elements. ahead: data to prefetch, of the same shape as w; or nullptr.
template <class Products, int M, int N>
void add_tile(Floats* sums, const typename Products::Weight* w, int64_t w_stride,
              const typename Products::Row* x, int64_t x_step, int64_t columns,
              const typename Products::Weight* ahead) {
  Floats here[M][N];  // in registers
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) here[i][r] = sums[i * N + r];
  for (int64_t j = 0; j < columns; j += kStep, x += x_step) {
    if (ahead != nullptr && j * static_cast<int64_t>(sizeof *w) % 64 == 0)
#pragma GCC unroll 8
      for (int r = 0; r < N; ++r) __builtin_prefetch(ahead + r * w_stride + j, 0, 2);
    add_part<Products, 0>(here, w + j, w_stride, x);
    if constexpr (Products::kParts == 2) add_part<Products, 1>(here, w + j, w_stride, x);
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) sums[i * N + r] = here[i][r];
}

// All rows of a block by N rows of the weight: a group, or one row.
template <class Products, int kTile, int N>
TRIREME_INLINE void add_group(Floats* sums, int64_t rows, const typename Products::Weight* w,
                              int64_t w_stride, const typename Products::Row* x, int64_t columns,
                              const typename Products::Weight* ahead) {
  int64_t i = 0;
  for (; i + kTile <= rows; i += kTile, ahead = nullptr)
    add_tile<Products, kTile, N>(sums + i * N, w, w_stride, x + i * kStep, rows * kStep, columns,
                                 ahead);
  if constexpr (kTile > 1)
    for (; i < rows; ++i, ahead = nullptr)
      add_tile<Products, 1, N>(sums + i * N, w, w_stride, x + i * kStep, rows * kStep, columns,
                               ahead);
}

// One row of the weight; `sums` has its sum for each row of x, kGroup apart.
template <class Products, class Shape>
void add_row(Floats* sums, int64_t rows, const typename Products::Weight* w,
             const typename Products::Row* x, int64_t columns) {
  Floats one[Shape::kRows];
  for (int64_t i = 0; i < rows; ++i) one[i] = sums[i * Shape::kGroup];
  add_group<Products, Shape::kTile, 1>(one, rows, w, 0, x, columns, nullptr);
  for (int64_t i = 0; i < rows; ++i) sums[i * Shape::kGroup] = one[i];
}

// Lane i of the result is the sum of the lanes of rows[i], in the order of sum().
template <class V, int kHalf = kLanes<typename Traits<V>::Scalar> / 2>
TRIREME_INLINE V sum_each(V (&rows)[kLanes<typename Traits<V>::Scalar>]) {
#pragma GCC unroll 8
  for (int i = 0; i < kHalf; ++i) {
    exchange_blocks<kHalf>(rows[i], rows[i + kHalf], LaneNumbers<V>{});
    rows[i] += rows[i + kHalf];
  }
  if constexpr (kHalf > 1)
    return sum_each<V, kHalf / 2>(rows);
  else
    return rows[0];
}

// Writes `count` outputs of a row from `column` on, each the sum of the lanes of one of `sums`. Not
// inlined: if each kind of tile had its own copy of this arithmetic, the compiler might fuse a
// product and a sum in one of them and not in another.
template <class Out>
[[gnu::noinline]] void finish(const auto& a, int64_t row, int64_t column, int64_t count,
                              Floats (&sums)[kMaxPanel]) {
  constexpr int64_t kLane = kLanes<float>;
  const auto* bias = static_cast<const Out*>(a.bias);
  Out* const y = static_cast<Out*>(a.y) + row * a.y_stride + column;
  for (int64_t j = 0; j < count; j += kLane) {
    const int64_t width = smaller(kLane, count - j);
    Floats value = opaque(a.alpha * sum_each(*reinterpret_cast<Floats(*)[kLane]>(sums + j)));
    if (bias != nullptr) value += load_partial(bias + column + j, width);
    if (a.accumulate) value += load_partial(y + j, width);
    store_partial(y + j, width, value);
  }
}

// A block of x by a panel of the weight: rows row .. row + rows of x by rows j .. j + n of the
// weight.
template <class Products, class Shape, class Out>
void panel(const auto& a, int64_t row, int64_t rows, int64_t j, int64_t n) {
  using Weight = typename Products::Weight;
  constexpr int kGroup = Shape::kGroup;
  Floats sums[Shape::kGroups][Shape::kRows * kGroup] = {};
  const int64_t piece = piece_columns(rows), whole = a.k / kStep * kStep, groups = n / kGroup;
  const auto* const x =
      reinterpret_cast<const typename Products::Row*>(a.packed_x) + row * packed_columns(a.k);
  // Weight to prefetch: group g of the piece at c, continuing into the next piece and the next
  // panel, which is usually this thread's.
  const auto ahead_of = [&](int64_t g, int64_t c) -> const Weight* {
    if (row != 0) return nullptr;  // later rows of x find it in cache
    if (g < groups) return a.w + (j + g * kGroup) * a.w_stride + c;
    g -= groups;
    if (c + piece < whole)
      return a.w + (j + smaller(g, groups - 1) * kGroup) * a.w_stride + c + piece;
    const int64_t next = j + n + g * kGroup;
    return next + kGroup <= a.n ? a.w + next * a.w_stride : nullptr;
  };
  for (int64_t c = 0; c < whole; c += piece) {
    const int64_t width = smaller(piece, whole - c);
    for (int64_t g = 0; g < groups; ++g)
      add_group<Products, Shape::kTile, kGroup>(
          sums[g], rows, a.w + (j + g * kGroup) * a.w_stride + c, a.w_stride, x + c * rows, width,
          ahead_of(g + (piece < whole ? kGroupsAhead : 1), c));
    for (int64_t r = groups * kGroup; r < n; ++r)
      add_row<Products, Shape>(sums[groups] + r % kGroup, rows, a.w + (j + r) * a.w_stride + c,
                               x + c * rows, width);
  }
  for (int64_t r = 0; whole < a.k && r < n; ++r) {
    Weight rest[kStep];
    pad_step(rest, a.w + (j + r) * a.w_stride + whole, a.k - whole);
    add_row<Products, Shape>(sums[r / kGroup] + r % kGroup, rows, static_cast<const Weight*>(rest),
                             x + whole * rows, kStep);
  }
  for (int64_t i = 0; i < rows; ++i) {
    Floats of_row[kMaxPanel] = {};
    for (int64_t r = 0; r < n; ++r) of_row[r] = sums[r / kGroup][i * kGroup + r % kGroup];
    finish<Out>(a, row + i, j, n, of_row);
  }
}

// Rows begin .. end of the weight by all rows of x.
template <class Products, class Shape, class Out>
void panels(const auto& a, int64_t begin, int64_t end) {
  const int64_t together = block_rows(a.m);
  for (int64_t j = begin; j < end; j += Shape::kPanel)
    for (int64_t row = 0; row < a.m; row += together) {
      const int64_t rows = smaller(together, a.m - row), n = smaller(Shape::kPanel, end - j);
      if constexpr (Shape::kTile < Shape::kRows)
        panel<Products, Shape, Out>(a, row, rows, j, n);
      else  // a smaller block has its own shape
        with_shape(rows, [&]<class Own>() { panel<Products, Own, Out>(a, row, rows, j, n); });
    }
}

// y = x w^T; T: type of w and x.
template <class Products, class T>
void multiply_rows(const Gemv<T>& a, int threads) {
  constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth a thread
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  parallel_for(threads, a.m, kGrainBytes / row_bytes + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_row<Products>(a, i);
  });
  with_shape(block_rows(a.m), [&]<class Shape>() {
    const int64_t count = (a.n + Shape::kPanel - 1) / Shape::kPanel;
    const int64_t piece = kGrainBytes / (Shape::kPanel * row_bytes * a.m) + 1;
    parallel_pieces(threads, count, piece, [&a](int64_t begin, int64_t end) {
      begin *= Shape::kPanel;
      end = smaller(end * Shape::kPanel, a.n);
      if (a.y_float32)
        panels<Products, Shape, float>(a, begin, end);
      else
        panels<Products, Shape, T>(a, begin, end);
    });
  });
}

}  // namespace
}  // namespace trireme::cpu::TRIREME_ISA
