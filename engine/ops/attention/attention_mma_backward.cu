// Attention backward on tensor cores, in the two kernels of attention_backward.cu: a tile of 64
// queries of one head computes dq, a tile of 64 keys of one key/value head computes dk and dv.
// Probabilities and their gradients stay in registers and are rounded to 16 bits as operands of the
// products.
#include "engine/ops/attention/attention_mma.cuda.h"

namespace trireme::cuda {
namespace {

// Rows of the other side per step.
template <int D>
inline constexpr int kColumns = D <= 64 ? 64 : 32;

// Tiles of a block: two of its own rows, and two stages of two of the other side.
template <int D, class T>
constexpr int64_t shared_bytes() {
  return static_cast<int64_t>(sizeof(T)) * kMmaStride<D> * (2 * kMmaRows + 4 * kColumns<D>);
}

// Replaces dout v^T in ds by the gradients of the scores; the tile's rows are queries, its columns
// the keys from j0 on. p: the scores; row: first of the lane's two.
template <class T, int kTiles>
__device__ void differentiate_queries(const WarpTile<kTiles>& p, WarpTile<kTiles>& ds,
                                      const cpu::AttentionBackward<T>& a, const AttentionTile& t,
                                      int64_t row, int64_t head, int64_t j0, const float (&base)[2],
                                      const float (&delta)[2]) {
  const float scale = static_cast<float>(static_cast<double>(a.scale) * kLog2E);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto seen = seen_columns<Side::kQueries, 8 * kTiles>(t, row + 8 * r, j0);
    const bool drop = a.drop_threshold > 0 && row + 8 * r < t.queries;
    const uint64_t word = drop ? dropout_row(a, t.first_query + row + 8 * r, head) : uint64_t{0};
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * n + lane_column() + e;
        float& d = ds.d[n][2 * r + e];
        if (column < seen.low || column >= seen.high) {
          d = 0;
          continue;
        }
        if (drop) d *= dropout_factor(a, word, t.first_key + j0 + column, j0 + column);
        d = exp2f(p.d[n][2 * r + e] * scale - base[r]) * (d - delta[r]);
      }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kMmaThreads, 2) queries_kernel(cpu::AttentionBackward<T> a) {
  begin_kernel();
  constexpr int kC = kColumns<D>, kTile = kC * kMmaStride<D>, kTiles = kC / 8;
  const auto t = find_tile<Side::kQueries, kMmaRows>(a, gridDim.x - 1 - blockIdx.x);
  if (t.rows == 0) return;
  const int64_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const int64_t row = t.row0 + warp_row + lane_row();  // first of the lane's two
  T* const queries = dynamic_shared<T>();
  T* const dout = queries + kMmaRows * kMmaStride<D>;
  T* const keys = dout + kMmaRows * kMmaStride<D>;
  T* const values = keys + 2 * kTile;
  const int64_t begin = t.keys_begin(t.row0) / kC * kC, end = t.keys_end(t.row0 + t.rows);
  const auto start = [&](int64_t j0, int stage) {
    start_tile<D, kC>(keys + stage * kTile, a.k, kv_head, t.first_key + j0, t.keys - j0, a.width);
    start_tile<D, kC>(values + stage * kTile, a.v, kv_head, t.first_key + j0, t.keys - j0, a.width);
  };
  start_tile<D, kMmaRows>(queries, a.q, head, t.first_query + t.row0, t.rows, a.width);
  start_tile<D, kMmaRows>(dout, a.dout, head, t.first_query + t.row0, t.rows, a.width);
  if (begin < end) start(begin, 0);
  commit_copies();
  float base[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t at = head * a.tokens + t.first_query + row + 8 * r;
    const bool used = row + 8 * r < t.queries;
    base[r] = used ? base_of(a.lse[at]) : kInfinity;
    delta[r] = used ? a.scratch[at] : 0.0f;
  }
  WarpTile<D / 8> dq;
  dq.clear();
  int stage = 0;
  for (int64_t j0 = begin; j0 < end; j0 += kC, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();
    if (j0 + kC < end) start(j0 + kC, stage ^ 1);
    commit_copies();
    WarpTile<kTiles> p, ds;
    row_products<D>(p, queries + warp_row * kMmaStride<D>, keys + stage * kTile);
    row_products<D>(ds, dout + warp_row * kMmaStride<D>, values + stage * kTile);
    differentiate_queries(p, ds, a, t, row, head, j0, base, delta);
    add_weighted<D>(dq, ds, keys + stage * kTile);
  }
  wait_copies<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= t.queries) continue;
    const int64_t query = t.first_query + row + 8 * r;
    if (a.by_segments)
      store_sums<true, D>(a.dq_sum.data + query * a.dq_sum.row + head * a.dq_sum.head, dq, r,
                          a.scale, a.width);
    else
      store_sums<false, D>(a.dq.data + query * a.dq.row + head * a.dq.head, dq, r, a.scale,
                           a.width);
  }
}

// Replaces the scores p by probabilities, and dout v^T in ds by their gradients; the tile's rows
// are keys, its columns the queries from i0 on.
template <class T, int kTiles>
__device__ void differentiate_keys(WarpTile<kTiles>& p, WarpTile<kTiles>& ds,
                                   const cpu::AttentionBackward<T>& a, const AttentionTile& t,
                                   int64_t row, int64_t head, int64_t i0) {
  const float scale = static_cast<float>(static_cast<double>(a.scale) * kLog2E);
  const SeenColumns seen[2] = {seen_columns<Side::kKeys, 8 * kTiles>(t, row, i0),
                               seen_columns<Side::kKeys, 8 * kTiles>(t, row + 8, i0)};
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 8 * n + lane_column() + e;
      const int64_t query = t.first_query + i0 + column;
      const bool used = i0 + column < t.queries;
      const float base = used ? base_of(a.lse[head * a.tokens + query]) : kInfinity;
      const float delta = used ? a.scratch[head * a.tokens + query] : 0.0f;
      const bool drop = a.drop_threshold > 0 && used;
      const uint64_t word = drop ? dropout_row(a, query, head) : uint64_t{0};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float &weight = p.d[n][2 * r + e], &d = ds.d[n][2 * r + e];
        const int64_t j = row + 8 * r;
        if (column < seen[r].low || column >= seen[r].high || j >= t.keys) {
          weight = d = 0;
          continue;
        }
        const float factor = drop ? dropout_factor(a, word, t.first_key + j, j) : 1.0f;
        weight = exp2f(weight * scale - base);
        d = weight * (d * factor - delta);
        weight *= factor;
      }
    }
}

// Stores the lane's part of dk and dv; row: first of its two.
template <int D, class T>
__device__ void store_keys(const cpu::AttentionBackward<T>& a, const AttentionTile& t, int64_t row,
                           int64_t kv_head, const WarpTile<D / 8>& dk, const WarpTile<D / 8>& dv) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= t.keys) continue;
    const int64_t key = t.first_key + row + 8 * r;
    if (a.by_segments) {
      store_sums<true, D>(a.dk_sum.data + key * a.dk_sum.row + kv_head * a.dk_sum.head, dk, r,
                          a.scale, a.width);
      store_sums<true, D>(a.dv_sum.data + key * a.dv_sum.row + kv_head * a.dv_sum.head, dv, r, 1.0f,
                          a.width);
    } else {
      store_sums<false, D>(a.dk.data + key * a.dk.row + kv_head * a.dk.head, dk, r, a.scale,
                           a.width);
      store_sums<false, D>(a.dv.data + key * a.dv.row + kv_head * a.dv.head, dv, r, 1.0f, a.width);
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kMmaThreads, 2) keys_kernel(cpu::AttentionBackward<T> a) {
  begin_kernel();
  constexpr int kC = kColumns<D>, kTile = kC * kMmaStride<D>, kTiles = kC / 8;
  const auto t = find_tile<Side::kKeys, kMmaRows>(a, blockIdx.x);
  if (t.rows == 0) return;
  const int64_t kv_head = blockIdx.y, group = a.heads / a.kv_heads;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const int64_t row = t.row0 + warp_row + lane_row();
  T* const keys = dynamic_shared<T>();
  T* const values = keys + kMmaRows * kMmaStride<D>;
  T* const queries = values + kMmaRows * kMmaStride<D>;
  T* const dout = queries + 2 * kTile;
  const int64_t begin = t.queries_begin(t.row0) / kC * kC, end = t.queries_end(t.row0 + t.rows);
  // All tiles of queries of all heads of the group, in sequence.
  const int64_t tiles = begin < end ? (end - begin + kC - 1) / kC : 0, steps = tiles * group;
  const auto start = [&](int64_t step) {
    const int64_t head = kv_head * group + step / tiles, i0 = begin + step % tiles * kC;
    const int at = static_cast<int>(step % 2) * kTile;
    start_tile<D, kC>(queries + at, a.q, head, t.first_query + i0, t.queries - i0, a.width);
    start_tile<D, kC>(dout + at, a.dout, head, t.first_query + i0, t.queries - i0, a.width);
  };
  start_tile<D, kMmaRows>(keys, a.k, kv_head, t.first_key + t.row0, t.rows, a.width);
  start_tile<D, kMmaRows>(values, a.v, kv_head, t.first_key + t.row0, t.rows, a.width);
  if (steps > 0) start(0);
  commit_copies();
  WarpTile<D / 8> dk, dv;
  dk.clear();
  dv.clear();
  for (int64_t step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) start(step + 1);
    commit_copies();
    const int at = static_cast<int>(step % 2) * kTile;
    WarpTile<kTiles> p, ds;
    row_products<D>(p, keys + warp_row * kMmaStride<D>, queries + at);
    row_products<D>(ds, values + warp_row * kMmaStride<D>, dout + at);
    differentiate_keys(p, ds, a, t, row, kv_head * group + step / tiles, begin + step % tiles * kC);
    add_weighted<D>(dv, p, dout + at);
    add_weighted<D>(dk, ds, queries + at);
  }
  wait_copies<0>();
  store_keys<D>(a, t, row, kv_head, dk, dv);
}

}  // namespace

template <class T>
bool mma_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  const auto all = [&](const auto&... views) { return (mma_rows(views, a.width) && ...); };
  const bool results = a.by_segments ? all(a.dq_sum, a.dk_sum, a.dv_sum) : all(a.dq, a.dk, a.dv);
  // The slopes of a soft cap would exceed the registers.
  if (a.width > 128 || a.cap > 0 || !results || !all(a.q, a.k, a.v, a.dout)) return false;
  const auto start = [&]<int D>() {
    launch(gpu, "attention_backward_queries", queries_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kQueries, kMmaRows), a.heads},
            .threads = kMmaThreads,
            .shared = shared_bytes<D, T>()},
           a);
    launch(gpu, "attention_backward_keys", keys_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kKeys, kMmaRows), a.kv_heads},
            .threads = kMmaThreads,
            .shared = shared_bytes<D, T>()},
           a);
  };
  a.width <= 64 ? start.template operator()<64>() : start.template operator()<128>();
  return true;
}

template bool mma_attention_backward<bf16>(Context&, const cpu::AttentionBackward<bf16>&);
template bool mma_attention_backward<f16>(Context&, const cpu::AttentionBackward<f16>&);

}  // namespace trireme::cuda
