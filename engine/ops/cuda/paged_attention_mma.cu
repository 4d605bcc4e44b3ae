// The parts of paged attention on tensor cores: the threads load tiles of 64 keys together, and each of
// the four warps computes all 16 rows of the block for 16 of the keys, with a softmax of its own; the
// four are merged at the end, in the order of the warps.
#include "engine/ops/cuda/attention_mma.h"
#include "engine/ops/cuda/paged_attention_tile.h"

namespace trireme::cuda {
namespace {

constexpr int kRows = 16, kKeys = 64;
constexpr int kWarps = kMmaThreads / kWarp;
constexpr int kWarpKeys = kKeys / kWarps;
constexpr int kTiles = kWarpKeys / 8;

// Starts to copy keys and values from key j0 on.
template <int D, class T>
__device__ void start_keys(T* keys, T* values, const cpu::PagedAttention<T>& a, const PagedTile& p,
                           int64_t j0) {
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int at = 0; at < kKeys * kChunks; at += kMmaThreads) {
    const int chunk = at + static_cast<int>(threadIdx.x);
    const int row = chunk / kChunks, column = chunk % kChunks * 8;
    const bool valid = j0 + row < p.end && column < a.width;
    const int64_t from = valid ? pool_offset(a, p, j0 + row) + column : 0;
    copy_async_16(keys + row * kMmaStride<D> + column, a.k + from, valid);
    copy_async_16(values + row * kMmaStride<D> + column, a.v + from, valid);
  }
}

template <int D, class T>
__device__ void start_queries(T* tile, const cpu::PagedAttention<T>& a, const PagedTile& p) {
  constexpr int kChunks = D / 8;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < kRows * kChunks; chunk += kMmaThreads) {
    const int row = chunk / kChunks, column = chunk % kChunks * 8;
    const bool valid = row < p.t.rows && column < a.width;
    const int64_t from =
        valid ? p.token(row) * a.q.row + p.head(row) * a.q.head + column : int64_t{0};
    copy_async_16(tile + row * kMmaStride<D> + column, a.q.data + from, valid);
  }
}

// What a warp leaves for the others: sums (kRows, D + 4), and of each row maximum and total.
template <int D>
struct WarpResult {
  static constexpr int kStride = D + 4;
  float sums[kRows * kStride];
  float maximum[kRows], total[kRows];
};

template <int D>
__device__ void leave(WarpResult<D>& to, const Running<float, 2>& w, const WarpTile<D / 8>& sums) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane_row() + 8 * r;
    const float total = quad_sum(w.total[r]);
    if (lane_column() == 0) {
      to.maximum[row] = w.maximum[r];
      to.total[row] = total;
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        to.sums[row * WarpResult<D>::kStride + 8 * n + lane_column() + e] = sums.d[n][2 * r + e];
  }
}

// The warps' results of a row together.
template <int D, class T>
__device__ void merge_warps(const WarpResult<D>* results, const cpu::PagedAttention<T>& a,
                            const PagedTile& p) {
  for (int at = static_cast<int>(threadIdx.x); at < kRows * D; at += kMmaThreads) {
    const int row = at / D, column = at % D;
    if (row >= p.t.rows || column >= a.width) continue;
    float maximum = -kInfinity, total = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, results[w].maximum[row]);
    const float base = maximum == -kInfinity ? 0.0f : maximum;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exp2f(results[w].maximum[row] - base);
      total += weight * results[w].total[row];
      sum += weight * results[w].sums[row * WarpResult<D>::kStride + column];
    }
    const int64_t to = partial_row(a, p, row);
    if (column == 0) a.partial_lse[to] = total == 0 ? -kInfinity : maximum + log2f(total);
    a.partial[to * a.width + column] = total == 0 ? 0.0f : sum / total;
  }
}

template <int D, class T>
constexpr int64_t shared_bytes() {
  constexpr auto kTile = static_cast<int64_t>(sizeof(T)) * kMmaStride<D>;
  constexpr auto kResults = static_cast<int64_t>(kWarps * sizeof(WarpResult<D>));
  static_assert(kResults <= 4 * kKeys * kTile, "the results lie where the keys were");
  return (kRows + 4 * kKeys) * kTile;
}

template <class T, int D>
__global__ void __launch_bounds__(kMmaThreads, D <= 64 ? 3 : 2)
    parts_kernel(cpu::PagedAttention<T> a) {
  constexpr int kTile = kKeys * kMmaStride<D>;
  const auto p = find_paged_tile<kRows, kKeys>(a);
  if (p.t.rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const queries = dynamic_shared<T>();
  T* const keys = queries + kRows * kMmaStride<D>;  // two tiles
  T* const values = keys + 2 * kTile;               // two tiles
  start_queries<D>(queries, a, p);
  if (p.begin < p.end) start_keys<D>(keys, values, a, p, p.begin);
  commit_copies();
  Running<float, 2> running{{-kInfinity, -kInfinity}, {0, 0}};
  WarpTile<D / 8> sums;
  sums.clear();
  wait_copies<0>();
  __syncthreads();
  uint32_t rows[D / 16][4];
  load_rows<D>(rows, queries);
  const float scale = static_cast<float>(static_cast<double>(a.scale) * kLog2E);
  int stage = 0;
  for (int64_t j0 = p.begin; j0 < p.end; j0 += kKeys, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();
    const int other = (stage ^ 1) * kTile;
    if (j0 + kKeys < p.end) start_keys<D>(keys + other, values + other, a, p, j0 + kKeys);
    commit_copies();
    const int own = stage * kTile + warp * kWarpKeys * kMmaStride<D>;
    const int64_t first = j0 + warp * kWarpKeys;
    const SeenColumns seen[2] = {
        seen_columns<Side::kQueries, kWarpKeys>(p.t, p.query(lane_row()), first),
        seen_columns<Side::kQueries, kWarpKeys>(p.t, p.query(lane_row() + 8), first)};
    WarpTile<kTiles> s;
    row_products<D>(s, rows, keys + own);
    scale_and_hide(s, scale, seen);
    softmax<D>(running, s, sums);
    add_weighted<D>(sums, s, values + own);
  }
  __syncthreads();  // the tiles have been read: the results take their place
  auto* const results = reinterpret_cast<WarpResult<D>*>(keys);
  leave(results[warp], running, sums);
  __syncthreads();
  merge_warps(results, a, p);
}

}  // namespace

template <class T>
bool mma_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a) {
  const cpu::HeadView<const T> k{a.k, a.width, a.width}, v{a.v, a.width, a.width};
  if (a.width > 128 || !mma_rows(a.q, a.width) || !mma_rows(k, a.width) || !mma_rows(v, a.width))
    return false;
  const auto start = [&]<int D>() {
    const int64_t rows = a.most_queries * (a.heads / a.kv_heads);
    launch(gpu, "paged_attention_parts", parts_kernel<T, D>,
           {.blocks = {a.splits * blocks_for(rows, kRows), a.kv_heads, a.sequences},
            .threads = kMmaThreads,
            .shared = shared_bytes<D, T>()},
           a);
  };
  a.width <= 64 ? start.template operator()<64>() : start.template operator()<128>();
  return true;
}

template bool mma_paged_attention<bf16>(Context&, const cpu::PagedAttention<bf16>&);
template bool mma_paged_attention<f16>(Context&, const cpu::PagedAttention<f16>&);

}  // namespace trireme::cuda
