// Attention forward on tensor cores (FlashAttention-2, Dao 2023): a tile of 64 queries of one head
// iterates over tiles of 64 keys, and the next tile is copied while one is used.
#include "engine/ops/attention/attention_mma.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kKeys = 64;  // of a tile
constexpr int kTiles = kKeys / 8;

template <class T>
__device__ void drop(WarpTile<kTiles>& s, const cpu::Attention<T>& a, const AttentionTile& t,
                     int64_t row, int64_t head, int64_t j0) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= t.queries) continue;
    const uint64_t word = dropout_row(a, t.first_query + row + 8 * r, head);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t j = j0 + 8 * n + lane_column() + e;
        if (s.d[n][2 * r + e] > 0) s.d[n][2 * r + e] *= dropout_factor(a, word, t.first_key + j, j);
      }
  }
}

// Starts from the results of earlier calls in out_sum and lse.
template <int D, class T>
__device__ void resume(OnlineSoftmax<float, 2>& w, WarpTile<D / 8>& sums,
                       const cpu::AttentionForward<T>& a, const AttentionTile& t, int64_t row,
                       int64_t head) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t query = t.first_query + row + 8 * r;
    const bool used = row + 8 * r < t.queries;
    const float before = used ? a.lse[head * a.tokens + query] : -kInfinity;
    if (before == -kInfinity) continue;
    w.maximum[r] = before * static_cast<float>(kLog2E);
    w.total[r] = lane_column() == 0 ? 1.0f : 0.0f;
    const float* from = a.out_sum.data + query * a.out_sum.row + head * a.out_sum.head;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * n + lane_column() + e;
        if (column < a.width) sums.d[n][2 * r + e] = from[column];
      }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kMmaThreads, D <= 64 ? 3 : 2)
    forward_kernel(cpu::AttentionForward<T> a) {
  begin_kernel();
  constexpr int kTile = kKeys * kMmaStride<D>;
  const auto t = find_tile<Side::kQueries, kMmaRows>(a, gridDim.x - 1 - blockIdx.x);
  if (t.rows == 0) return;
  const int64_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;  // of the warp
  const int64_t row = t.row0 + first_row + lane_row();               // first of the lane
  T* const queries = dynamic_shared<T>();
  T* const keys = queries + kTile;     // two tiles
  T* const values = keys + 2 * kTile;  // two tiles
  const int64_t begin = t.keys_begin(t.row0) / kKeys * kKeys, end = t.keys_end(t.row0 + t.rows);
  const auto start = [&](int64_t j0, int stage) {
    start_tile<D, kKeys>(keys + stage * kTile, a.k, kv_head, t.first_key + j0, t.keys - j0,
                         a.width);
    start_tile<D, kKeys>(values + stage * kTile, a.v, kv_head, t.first_key + j0, t.keys - j0,
                         a.width);
  };
  start_tile<D, kMmaRows>(queries, a.q, head, t.first_query + t.row0, t.rows, a.width);
  if (begin < end) start(begin, 0);
  commit_copies();
  OnlineSoftmax<float, 2> running{{-kInfinity, -kInfinity}, {0, 0}};
  WarpTile<D / 8> sums;
  sums.clear();
  if (a.by_segments) resume<D>(running, sums, a, t, row, head);
  wait_copies<0>();
  __syncthreads();
  uint32_t rows[D / 16][4];
  load_rows<D>(rows, queries + first_row * kMmaStride<D>);
  const float scale = static_cast<float>(static_cast<double>(a.scale) * kLog2E);
  int stage = 0;
  for (int64_t j0 = begin; j0 < end; j0 += kKeys, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();  // until the tile is complete and the other one has been read
    if (j0 + kKeys < end) start(j0 + kKeys, stage ^ 1);
    commit_copies();
    WarpTile<kTiles> s;
    row_products<D>(s, rows, keys + stage * kTile);
    const SeenColumns seen[2] = {seen_columns<Side::kQueries, kKeys>(t, row, j0),
                                 seen_columns<Side::kQueries, kKeys>(t, row + 8, j0)};
    scale_and_hide(s, scale, a.cap, seen);
    softmax<D>(running, s, sums);
    if (a.drop_threshold > 0) drop(s, a, t, row, head, j0);
    add_weighted<D>(sums, s, values + stage * kTile);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(running.total[r]);
    if (row + 8 * r >= t.queries) continue;
    const int64_t query = t.first_query + row + 8 * r;
    const float factor = total == 0 ? 0.0f : 1.0f / total;
    if (lane_column() == 0)
      a.lse[head * a.tokens + query] =
          total == 0 ? -kInfinity : running.maximum[r] * static_cast<float>(kLn2) + logf(total);
    if (a.by_segments)
      store_sums<false, D>(a.out_sum.data + query * a.out_sum.row + head * a.out_sum.head, sums, r,
                           factor, a.width);
    else
      store_sums<false, D>(a.out.data + query * a.out.row + head * a.out.head, sums, r, factor,
                           a.width);
  }
}

}  // namespace

template <class T>
bool mma_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  const bool results = a.by_segments ? mma_rows(a.out_sum, a.width) : mma_rows(a.out, a.width);
  if (a.width > 128 || !results || !mma_rows(a.q, a.width) || !mma_rows(a.k, a.width) ||
      !mma_rows(a.v, a.width))
    return false;
  const auto start = [&]<int D>() {
    launch(gpu, "attention_forward", forward_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kQueries, kMmaRows), a.heads},
            .threads = kMmaThreads,
            .shared = (kMmaRows + 4 * kKeys) * kMmaStride<D> * static_cast<int64_t>(sizeof(T))},
           a);
  };
  a.width <= 64 ? start.template operator()<64>() : start.template operator()<128>();
  return true;
}

template bool mma_attention_forward<bf16>(Context&, const cpu::AttentionForward<bf16>&);
template bool mma_attention_forward<f16>(Context&, const cpu::AttentionForward<f16>&);

}  // namespace trireme::cuda
