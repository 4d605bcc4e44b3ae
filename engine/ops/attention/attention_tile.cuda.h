// Parts shared by the GPU's attention kernels: assignment of thread blocks to tiles of sequences,
// columns seen by a row, dropout, and tiles in shared memory. For CUDA sources only.
//
// The thread blocks of a grid are numbered by *slots*. Sequence n has the rows begin(n) .. end(n);
// its slots start at floor(begin(n) / rows) + n, where `rows` is the height of a tile. These are
// enough slots for its tiles. Their numbers grow with n, so a thread block finds its sequence by
// bisection over the offsets on the device, and nothing is counted before the launch. Slots without
// a tile exit at once.
#pragma once

#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/backend/math.cuda.h"

namespace trireme::cuda {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.693147180559945309417;

__device__ inline float exp2_of(float x) { return exp2f(x); }
__device__ inline double exp2_of(double x) { return exp2(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline float log2_of(float x) { return log2f(x); }
__device__ inline double log2_of(double x) { return log2(x); }
__device__ inline double log_of(double x) { return log(x); }

__device__ inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

enum class Side { kQueries, kKeys };  // meaning of a tile's rows

// Entries in the list of sequences or segments: with cu_q and cu_k, one more for the padding.
template <class T>
TRIREME_HOST_DEVICE int64_t entries_of(const cpu::Attention<T>& a) {
  return a.by_segments ? a.sequences : a.sequences + 1;
}

// Number of slots for tiles of `rows` rows: thread blocks in x of the grid.
template <class T>
int64_t slots_of(const cpu::Attention<T>& a, Side side, int64_t rows) {
  const int64_t entries = entries_of(a);
  return entries == 0 ? 0 : (side == Side::kQueries ? a.tokens : a.keys) / rows + entries;
}

// Tile of a sequence or segment. Query i of the sequence sees the keys j with i + offset - window <
// j <= i + offset.
struct AttentionTile {
  int64_t first_query, queries, first_key, keys;  // rows of q and of k, and their numbers
  int64_t offset, window;  // without a limit: so large that every key is seen
  int64_t row0;            // first row of the tile in the sequence
  int rows;                // of the tile; 0: no work

  // Ranges of the keys that at least one of the queries [i0, i1) sees, and of the queries that see
  // one of the keys [j0, j1). Empty if the end is not above the beginning.
  __device__ int64_t keys_begin(int64_t i0) const { return larger(0, i0 + offset - window + 1); }
  __device__ int64_t keys_end(int64_t i1) const { return smaller(keys, i1 + offset); }
  __device__ int64_t queries_begin(int64_t j0) const { return larger(0, j0 - offset); }
  __device__ int64_t queries_end(int64_t j1) const {
    return smaller(queries, j1 - 1 - offset + window);
  }
};

// First row of entry n in q or in k.
template <Side side, class T>
__device__ int64_t begin_of(const cpu::Attention<T>& a, int64_t n) {
  if (a.by_segments) return a.segments[n * 5 + (side == Side::kQueries ? 0 : 2)];
  return (side == Side::kQueries ? a.cu_q : a.cu_k)[n];
}

// Tile of a slot; its `rows` is 0 if the slot has none.
template <Side side, int kRows, class T>
__device__ AttentionTile find_tile(const cpu::Attention<T>& a, int64_t slot) {
  int64_t low = 0, high = entries_of(a);
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (begin_of<side>(a, middle) / kRows + middle <= slot ? low : high) = middle;
  }
  constexpr int64_t kUnlimited = int64_t{1} << 40;
  AttentionTile t;
  t.window = a.window > 0 ? a.window : 2 * kUnlimited;
  t.first_query = begin_of<Side::kQueries>(a, low);
  t.first_key = begin_of<Side::kKeys>(a, low);
  if (a.by_segments) {
    const int32_t* segment = a.segments + low * 5;
    t.queries = segment[1] - t.first_query;
    t.keys = segment[3] - t.first_key;
    t.offset = segment[4];
  } else if (low < a.sequences) {
    t.queries = a.cu_q[low + 1] - t.first_query;
    t.keys = a.cu_k[low + 1] - t.first_key;
    t.offset = a.causal ? t.keys - t.queries : kUnlimited;
  } else {  // padding: rows without keys
    t.queries = side == Side::kQueries ? a.tokens - t.first_query : 0;
    t.keys = side == Side::kKeys ? a.keys - t.first_key : 0;
    t.offset = 0;
  }
  const int64_t begin = side == Side::kQueries ? t.first_query : t.first_key;
  const int64_t count = side == Side::kQueries ? t.queries : t.keys;
  t.row0 = (slot - (begin / kRows + low)) * kRows;
  t.rows =
      slot < begin / kRows + low ? 0 : static_cast<int>(larger(0, smaller(kRows, count - t.row0)));
  return t;
}

// Columns [low, high) of a tile that are visible with a given row: the keys that query `row` sees,
// or, if rows are keys, the queries that see key `row`. The tile has kColumns columns from column0
// of the sequence on, and `row` counts in the sequence.
struct SeenColumns {
  int low, high;
};
template <Side rows, int kColumns>
__device__ SeenColumns seen_columns(const AttentionTile& t, int64_t row, int64_t column0) {
  int64_t low, high;
  if constexpr (rows == Side::kQueries) {
    low = row + t.offset - t.window + 1;
    high = smaller(row + t.offset + 1, t.keys);
  } else {
    low = row - t.offset;
    high = smaller(row - t.offset + t.window, t.queries);
  }
  return {static_cast<int>(larger(0, smaller(low - column0, kColumns))),
          static_cast<int>(larger(0, smaller(high - column0, kColumns)))};
}

// Base-2 lse: exp2(score - base) is the probability, which is 0 for a query without keys.
template <class F>
__device__ F base_of(F lse) {
  return lse == -kInfinity ? F{kInfinity} : lse * static_cast<F>(kLog2E);
}

// Score under a soft cap, cap tanh(score / cap), and its derivative; cap == 0: none.
template <class F>
__device__ F capped(F score, F cap) {
  return cap > 0 ? cap * hyperbolic_tangent(score / cap) : score;
}
template <class F>
__device__ F cap_slope(F capped_score, F cap) {
  return cap > 0 ? F{1} - capped_score / cap * (capped_score / cap) : F{1};
}

// --- dropout ---

// Number of the first word of (query, head): query is a row of q.
template <class T>
__device__ uint64_t dropout_row(const cpu::Attention<T>& a, int64_t query, int64_t head) {
  const auto row = static_cast<uint64_t>(a.global_index[query]);
  return (row * static_cast<uint64_t>(a.total_heads) + static_cast<uint64_t>(a.first_head + head))
         << 24;
}

// Factor of a probability, 0 or a.keep_scale. key is a row of k, and j its position in its
// sequence, which is used if there is no a.key_position.
template <class T>
__device__ compute_t<T> dropout_factor(const cpu::Attention<T>& a, uint64_t first_word, int64_t key,
                                       int64_t j) {
  const uint64_t index =
      first_word + static_cast<uint64_t>(a.key_position != nullptr ? a.key_position[key] : j);
  const PhiloxBlock block = philox(a.key, index / 4);
  const uint32_t low = index % 2 == 0 ? block[0] : block[1];
  const uint32_t high = index % 2 == 0 ? block[2] : block[3];
  const uint32_t word = index % 4 < 2 ? low : high;
  return (word >> 8) >= a.drop_threshold ? a.keep_scale : compute_t<T>{0};
}

// --- the kernels without tensor cores ---
//
// 128 threads work on a tile of kRows x kRows scores: eight neighbouring lanes share kOwn rows, and
// each of them has every eighth column. Operands are converted once, into shared memory.

inline constexpr int kBlockedThreads = 128;
inline constexpr int kRowLanes = 8;

// D: columns of the operands in shared memory, at least their width.
template <class F, int D>
struct Blocked {
  static constexpr int kRows = sizeof(F) == 4 && D <= 128 ? 32 : 16;
  static constexpr int kOwn = kRows / (kBlockedThreads / kRowLanes);  // rows of a thread
  static constexpr int kColumns = kRows / kRowLanes;                  // scores of a thread in a row
  static constexpr int kStride = D + 4;  // so that eight rows are in different banks
  static constexpr int kTile = kRows * kStride;
  static constexpr int kScoreStride = kRows + 4;
  static constexpr int kScores = kRows * kScoreStride;
};

// True if a head's rows can be loaded in whole packs.
template <class T>
__device__ bool wide_rows(const cpu::HeadView<const T>& view, int64_t width) {
  constexpr int kN = kPack<T>;
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row % kN == 0 &&
         view.head % kN == 0 && width % kN == 0;
}

// tile = factor * rows `first` .. `first + rows` of a head; zero in the rest of the tile.
template <int D, class T, class F>
__device__ void load_tile(F* tile, const cpu::HeadView<const T>& view, int64_t head, int64_t first,
                          int64_t rows, int64_t width, F factor) {
  using Tile = Blocked<F, D>;
  constexpr int kN = kPack<T>;
  const bool wide = wide_rows(view, width);
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kRows * (D / kN); at += kBlockedThreads) {
    const int row = at / (D / kN), column = at % (D / kN) * kN;
    const T* from = view.data + (first + row) * view.row + head * view.head + column;
    Pack<T, kN> pack{};
    if (row < rows && wide && column < width) {
      pack = *reinterpret_cast<const Pack<T, kN>*>(from);
    } else if (row < rows) {
#pragma unroll
      for (int i = 0; i < kN; ++i)
        if (column + i < width) pack.v[i] = from[i];
    }
#pragma unroll
    for (int i = 0; i < kN; ++i)
      tile[row * Tile::kStride + column + i] = to_compute(pack.v[i]) * factor;
  }
}

// scores[r][c] = sum over d of rows[r][d] * columns[8 c][d]; both point to the thread's first one.
template <int D, class F, class Tile = Blocked<F, D>>
__device__ void inner_products(F (&scores)[Tile::kOwn][Tile::kColumns], const F* rows,
                               const F* columns) {
  using Four = Pack<F, 4>;
#pragma unroll
  for (int r = 0; r < Tile::kOwn; ++r)
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) scores[r][c] = 0;
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    Four x[Tile::kOwn];
#pragma unroll
    for (int r = 0; r < Tile::kOwn; ++r)
      x[r] = *reinterpret_cast<const Four*>(rows + r * Tile::kStride + d);
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
      const Four y = *reinterpret_cast<const Four*>(columns + c * kRowLanes * Tile::kStride + d);
#pragma unroll
      for (int r = 0; r < Tile::kOwn; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[r][c] += x[r].v[e] * y.v[e];
    }
  }
}

// sums[r][4 i + e] += sum over k of weights[r][k] * values[k][32 i + e]; `weights` points to the
// thread's first row, `values` to its first column.
template <int D, class F, class Tile = Blocked<F, D>>
__device__ void weighted_sums(F (&sums)[Tile::kOwn][D / kRowLanes], const F* weights,
                              const F* values) {
  using Four = Pack<F, 4>;
#pragma unroll 2
  for (int k = 0; k < Tile::kRows; ++k) {
    F w[Tile::kOwn];
#pragma unroll
    for (int r = 0; r < Tile::kOwn; ++r) w[r] = weights[r * Tile::kScoreStride + k];
#pragma unroll
    for (int i = 0; i < D / 32; ++i) {
      const Four y = *reinterpret_cast<const Four*>(values + k * Tile::kStride + 32 * i);
#pragma unroll
      for (int r = 0; r < Tile::kOwn; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[r][4 * i + e] += w[r] * y.v[e];
    }
  }
}

// The running softmax of a thread's rows: base-2 maximum, and the thread's share of the sum.
template <class F, int kOwn>
struct OnlineSoftmax {
  F maximum[kOwn], total[kOwn];
};

// Replaces the scores, which are base-2 and -inf for keys that the row does not see, by
// probabilities relative to the running maximum; rescales older sums.
template <class F, int kOwn, int kColumns, int kSums>
__device__ void softmax_tile(OnlineSoftmax<F, kOwn>& w, F (&scores)[kOwn][kColumns],
                             F (&sums)[kOwn][kSums]) {
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    F now = w.maximum[r];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) now = scores[r][c] > now ? scores[r][c] : now;
    now = warp_max<kRowLanes>(now);
    const F base = now == -kInfinity ? F{0} : now;  // no key seen yet: exp2(-inf - 0) is 0
    const F rescale = exp2_of(w.maximum[r] - base);
    F sum = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      scores[r][c] = exp2_of(scores[r][c] - base);
      sum += scores[r][c];
    }
    w.maximum[r] = now;
    w.total[r] = w.total[r] * rescale + sum;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[r][i] *= rescale;
  }
}

// Sets scores of keys that a row does not see to -inf.
template <int kRows, class F, int kColumns>
__device__ void hide_columns(F (&scores)[kColumns], const AttentionTile& t, int64_t row,
                             int64_t j0) {
  const auto seen = seen_columns<Side::kQueries, kRows>(t, row, j0);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = static_cast<int>(threadIdx.x) % kRowLanes + kRowLanes * c;
    if (column < seen.low || column >= seen.high) scores[c] = -kInfinity;
  }
}

// Stores (kAdd: adds) factor * the thread's part of a row of sums. `to` is the start of that row in
// memory, of `width` elements.
template <bool kAdd, int D, class T, class F>
__device__ void store_row(T* to, const F (&sums)[D / kRowLanes], F factor, int64_t width) {
  const int column0 = static_cast<int>(threadIdx.x) % kRowLanes * 4;
#pragma unroll
  for (int i = 0; i < D / 32; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = column0 + 32 * i + e;
      if (column >= width) continue;
      const F value = sums[4 * i + e] * factor;
      to[column] = static_cast<T>(kAdd ? to_compute(to[column]) + value : value);
    }
}

// Calls call.operator()<D>() with the smallest supported D for `width` columns, at most
// kMaxHeadDim.
template <class Call>
void with_width(int64_t width, Call&& call) {
  if (width <= 64)
    call.template operator()<64>();
  else if (width <= 128)
    call.template operator()<128>();
  else
    call.template operator()<256>();
}

}  // namespace trireme::cuda
