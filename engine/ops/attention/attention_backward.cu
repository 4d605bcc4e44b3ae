// Attention backward without tensor cores, in two kernels without sums across thread blocks: a tile
// of queries of one head computes dq, a tile of keys of one key/value head computes dk and dv over
// all query heads that share it. Scores and dout v^T are computed in both.
#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/attention_tile.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kDeltaThreads = 128;

// One warp per row of each head.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_kernel(cpu::AttentionBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int lane = lane_of_warp();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kDeltaThreads / kWarp) +
                      static_cast<int64_t>(threadIdx.x) / kWarp;
  const int64_t head = blockIdx.y;
  if (row >= a.tokens) return;
  const T* dout = a.dout.data + row * a.dout.row + head * a.dout.head;
  const T* out = a.out.data + row * a.out.row + head * a.out.head;
  F sum = 0;
  for (int64_t d = lane; d < a.width; d += kWarp) sum += to_compute(dout[d]) * to_compute(out[d]);
  sum = warp_sum(sum);
  if (lane == 0) a.scratch[head * a.tokens + row] = sum;
}

// Terms of a query of a head: lse as from base_of, and delta; for an unused row, values that make
// its probabilities 0.
template <class F>
struct RowTerms {
  F base, delta;
};
template <class T>
__device__ RowTerms<compute_t<T>> terms_of(const cpu::AttentionBackward<T>& a, int64_t head,
                                           int64_t row, bool used) {
  if (!used) return {compute_t<T>{kInfinity}, compute_t<T>{0}};
  return {base_of(a.lse[head * a.tokens + row]), a.scratch[head * a.tokens + row]};
}

// Writes the gradients of the scores of one of the tile's rows, a query, to row `dscores` of a
// tile.
template <int kRows, class T, class F, int kColumns>
__device__ void differentiate_query(F* dscores, const F (&p)[kColumns], const F (&dp)[kColumns],
                                    const cpu::AttentionBackward<T>& a, const AttentionTile& t,
                                    int row, int64_t head, int64_t j0, RowTerms<F> terms) {
  const auto seen = seen_columns<Side::kQueries, kRows>(t, t.row0 + row, j0);
  const bool drop = a.drop_threshold > 0 && row < t.rows;
  const uint64_t word = drop ? dropout_row(a, t.first_query + t.row0 + row, head) : uint64_t{0};
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = static_cast<int>(threadIdx.x) % kRowLanes + kRowLanes * c;
    F ds = 0;
    if (column >= seen.low && column < seen.high) {
      F d = dp[c];
      if (drop) d *= dropout_factor(a, word, t.first_key + j0 + column, j0 + column);
      const F score = capped(p[c], a.cap);
      ds = exp2_of(score - terms.base) * (d - terms.delta) * cap_slope(score, a.cap);
    }
    dscores[column] = ds;
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kBlockedThreads, 2) queries_kernel(cpu::AttentionBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Tile = Blocked<F, D>;
  constexpr int kOwn = Tile::kOwn, kColumns = Tile::kColumns;
  const auto t = find_tile<Side::kQueries, Tile::kRows>(a, gridDim.x - 1 - blockIdx.x);
  if (t.rows == 0) return;
  const int64_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int own = static_cast<int>(threadIdx.x) / kRowLanes * kOwn;
  F* const queries = dynamic_shared<F>();
  F* const dout = queries + Tile::kTile;
  F* const keys = dout + Tile::kTile;
  F* const values = keys + Tile::kTile;
  F* const dscores = values + Tile::kTile;
  const int64_t first_row = t.first_query + t.row0;
  load_tile<D>(queries, a.q, head, first_row, t.rows, a.width,
               static_cast<F>(static_cast<double>(a.scale) * kLog2E));
  load_tile<D>(dout, a.dout, head, first_row, t.rows, a.width, F{1});
  RowTerms<F> terms[kOwn];
  F sums[kOwn][D / kRowLanes];
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    terms[r] = terms_of(a, head, first_row + own + r, own + r < t.rows);
#pragma unroll
    for (int i = 0; i < D / kRowLanes; ++i) sums[r][i] = 0;
  }
  const int64_t end = t.keys_end(t.row0 + t.rows);
  for (int64_t j0 = t.keys_begin(t.row0) / Tile::kRows * Tile::kRows; j0 < end; j0 += Tile::kRows) {
    __syncthreads();
    load_tile<D>(keys, a.k, kv_head, t.first_key + j0, t.keys - j0, a.width, F{1});
    load_tile<D>(values, a.v, kv_head, t.first_key + j0, t.keys - j0, a.width, F{1});
    __syncthreads();
    F p[kOwn][kColumns], dp[kOwn][kColumns];
    inner_products<D>(p, queries + own * Tile::kStride, keys + lane * Tile::kStride);
    inner_products<D>(dp, dout + own * Tile::kStride, values + lane * Tile::kStride);
#pragma unroll
    for (int r = 0; r < kOwn; ++r)
      differentiate_query<Tile::kRows>(dscores + (own + r) * Tile::kScoreStride, p[r], dp[r], a, t,
                                       own + r, head, j0, terms[r]);
    __syncwarp();
    weighted_sums<D>(sums, dscores + own * Tile::kScoreStride, keys + 4 * lane);
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    if (own + r >= t.rows) continue;
    const int64_t row = first_row + own + r;
    if (a.by_segments)
      store_row<true, D>(a.dq_sum.data + row * a.dq_sum.row + head * a.dq_sum.head, sums[r],
                         a.scale, a.width);
    else
      store_row<false, D>(a.dq.data + row * a.dq.row + head * a.dq.head, sums[r], a.scale, a.width);
  }
}

// Writes probabilities and gradients of the scores of the thread's rows, which are keys, with the
// queries of a head from i0 on, to the tiles `weights` and `dscores`.
template <int D, class T, class F>
__device__ void differentiate_keys(F* weights, F* dscores,
                                   const F (&p)[Blocked<F, D>::kOwn][Blocked<F, D>::kColumns],
                                   const F (&dp)[Blocked<F, D>::kOwn][Blocked<F, D>::kColumns],
                                   const cpu::AttentionBackward<T>& a, const AttentionTile& t,
                                   int own, int64_t head, int64_t i0) {
  using Tile = Blocked<F, D>;
#pragma unroll
  for (int c = 0; c < Tile::kColumns; ++c) {
    const int column = static_cast<int>(threadIdx.x) % kRowLanes + kRowLanes * c;
    const bool used = i0 + column < t.queries;
    const int64_t row = t.first_query + i0 + column;
    const auto terms = terms_of(a, head, row, used);
    const bool drop = a.drop_threshold > 0 && used;
    const uint64_t word = drop ? dropout_row(a, row, head) : uint64_t{0};
#pragma unroll
    for (int r = 0; r < Tile::kOwn; ++r) {
      const int64_t j = t.row0 + own + r;
      const auto seen = seen_columns<Side::kKeys, Tile::kRows>(t, j, i0);
      F weight = 0, ds = 0;
      if (column >= seen.low && column < seen.high && own + r < t.rows) {
        const F factor = drop ? dropout_factor(a, word, t.first_key + j, j) : F{1};
        const F score = capped(p[r][c], a.cap);
        weight = exp2_of(score - terms.base);
        ds = weight * (dp[r][c] * factor - terms.delta) * cap_slope(score, a.cap);
        weight *= factor;
      }
      weights[(own + r) * Tile::kScoreStride + column] = weight;
      dscores[(own + r) * Tile::kScoreStride + column] = ds;
    }
  }
}

// Stores one of the tile's rows of dk and dv.
template <int D, class T, class F>
__device__ void store_key(const cpu::AttentionBackward<T>& a, int64_t row, int64_t kv_head,
                          const F (&dk)[D / kRowLanes], const F (&dv)[D / kRowLanes]) {
  if (a.by_segments) {
    store_row<true, D>(a.dk_sum.data + row * a.dk_sum.row + kv_head * a.dk_sum.head, dk, a.scale,
                       a.width);
    store_row<true, D>(a.dv_sum.data + row * a.dv_sum.row + kv_head * a.dv_sum.head, dv, F{1},
                       a.width);
  } else {
    store_row<false, D>(a.dk.data + row * a.dk.row + kv_head * a.dk.head, dk, a.scale, a.width);
    store_row<false, D>(a.dv.data + row * a.dv.row + kv_head * a.dv.head, dv, F{1}, a.width);
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kBlockedThreads, 2) keys_kernel(cpu::AttentionBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Tile = Blocked<F, D>;
  constexpr int kOwn = Tile::kOwn, kColumns = Tile::kColumns;
  const auto t = find_tile<Side::kKeys, Tile::kRows>(a, blockIdx.x);
  if (t.rows == 0) return;
  const int64_t kv_head = blockIdx.y, group = a.heads / a.kv_heads;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int own = static_cast<int>(threadIdx.x) / kRowLanes * kOwn;
  F* const keys = dynamic_shared<F>();
  F* const values = keys + Tile::kTile;
  F* const queries = values + Tile::kTile;
  F* const dout = queries + Tile::kTile;
  F* const weights = dout + Tile::kTile;
  F* const dscores = weights + Tile::kScores;
  const int64_t first_row = t.first_key + t.row0;
  load_tile<D>(keys, a.k, kv_head, first_row, t.rows, a.width,
               static_cast<F>(static_cast<double>(a.scale) * kLog2E));
  load_tile<D>(values, a.v, kv_head, first_row, t.rows, a.width, F{1});
  F dk[kOwn][D / kRowLanes], dv[kOwn][D / kRowLanes];
#pragma unroll
  for (int r = 0; r < kOwn; ++r)
#pragma unroll
    for (int i = 0; i < D / kRowLanes; ++i) dk[r][i] = dv[r][i] = 0;
  const int64_t begin = t.queries_begin(t.row0) / Tile::kRows * Tile::kRows;
  const int64_t end = t.queries_end(t.row0 + t.rows);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t i0 = begin; i0 < end; i0 += Tile::kRows) {
      __syncthreads();
      load_tile<D>(queries, a.q, head, t.first_query + i0, t.queries - i0, a.width, F{1});
      load_tile<D>(dout, a.dout, head, t.first_query + i0, t.queries - i0, a.width, F{1});
      __syncthreads();
      F p[kOwn][kColumns], dp[kOwn][kColumns];
      inner_products<D>(p, keys + own * Tile::kStride, queries + lane * Tile::kStride);
      inner_products<D>(dp, values + own * Tile::kStride, dout + lane * Tile::kStride);
      differentiate_keys<D>(weights, dscores, p, dp, a, t, own, head, i0);
      __syncwarp();
      weighted_sums<D>(dv, weights + own * Tile::kScoreStride, dout + 4 * lane);
      weighted_sums<D>(dk, dscores + own * Tile::kScoreStride, queries + 4 * lane);
    }
#pragma unroll
  for (int r = 0; r < kOwn; ++r)
    if (own + r < t.rows) store_key<D>(a, first_row + own + r, kv_head, dk[r], dv[r]);
}

}  // namespace

template <class T>
void attention_delta(Context& gpu, const cpu::AttentionBackward<T>& a) {
  launch(
      gpu, "attention_delta", delta_kernel<T>,
      {.blocks = {blocks_for(a.tokens, kDeltaThreads / kWarp), a.heads}, .threads = kDeltaThreads},
      a);
}

template <class T>
void blocked_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  using F = compute_t<T>;
  with_width(a.width, [&]<int D>() {
    using Tile = Blocked<F, D>;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(F));
    launch(gpu, "attention_backward_queries", queries_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kQueries, Tile::kRows), a.heads},
            .threads = kBlockedThreads,
            .shared = (4 * Tile::kTile + Tile::kScores) * kBytes},
           a);
    launch(gpu, "attention_backward_keys", keys_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kKeys, Tile::kRows), a.kv_heads},
            .threads = kBlockedThreads,
            .shared = (4 * Tile::kTile + 2 * Tile::kScores) * kBytes},
           a);
  });
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template void attention_delta<T>(Context&, const cpu::AttentionBackward<T>&); \
  template void blocked_attention_backward<T>(Context&, const cpu::AttentionBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
