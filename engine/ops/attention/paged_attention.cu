// Paged attention in two steps: thread blocks take parts of the keys of a sequence, and a second
// kernel merges the parts of sequences with several, in order. Here: the first step without tensor
// cores, the merge, and the copies into and out of the pools.
#include <cfloat>

#include "engine/ops/attention/paged_attention_tile.cuda.h"
#include "engine/ops/attention/paged_codes.cuda.h"

namespace trireme::cuda {
namespace {

// Elements of a pool of numbers, and of one of codes.
template <class T>
struct Numbers {
  const T* rows;
  __device__ compute_t<T> at(int64_t row, int64_t width, int column) const {
    return to_compute(rows[row * width + column]);
  }
};
struct Codes {
  const uint8_t* rows;
  const float* scale;
  KvCodes codes;
  __device__ float at(int64_t row, int64_t width, int column) const {
    const uint32_t code = rows[row * width + column];
    float number = 0;
    with_codes(codes, [&]<KvCodes kCodes>() { number = code_number<kCodes>(code); });
    return scale[row] * number;
  }
};

// tile = rows of the pool from key j0 on, before key `end`; zero in the rest of the tile.
template <int D, class Pool, class T, class F>
__device__ void load_keys(F* tile, const Pool& pool, const cpu::PagedAttention<T>& a,
                          const PagedTile& p, int64_t j0) {
  using Tile = Blocked<F, D>;
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kRows * D; at += kBlockedThreads) {
    const int row = at / D, column = at % D;
    F value = 0;
    if (j0 + row < p.end && column < a.width)
      value = pool.at(pool_row(a, p, j0 + row), a.width, column);
    tile[row * Tile::kStride + column] = value;
  }
}

// tile = the tile's rows of q, scaled so that scores are in units of log 2; zero in the rest of it.
template <int D, class T, class F>
__device__ void load_queries(F* tile, const cpu::PagedAttention<T>& a, const PagedTile& p) {
  using Tile = Blocked<F, D>;
  const F scale = static_cast<F>(static_cast<double>(a.scale) * kLog2E);
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kRows * D; at += kBlockedThreads) {
    const int row = at / D, column = at % D;
    F value = 0;
    if (row < p.t.rows && column < a.width)
      value = to_compute(a.q.data[p.token(row) * a.q.row + p.head(row) * a.q.head + column]);
    tile[row * Tile::kStride + column] = value * scale;
  }
}

template <class T, int D, class Pool>
__global__ void __launch_bounds__(kBlockedThreads, 2)
    parts_kernel(cpu::PagedAttention<T> a, Pool all_keys, Pool all_values) {
  begin_kernel();
  using F = compute_t<T>;
  using Tile = Blocked<F, D>;
  constexpr int kOwn = Tile::kOwn, kColumns = Tile::kColumns;
  if (blockIdx.x == 0) clear_paged_padding(a);
  const auto p = find_paged_tile<Tile::kRows, Tile::kRows>(a);
  if (p.t.rows == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int own = static_cast<int>(threadIdx.x) / kRowLanes * kOwn;
  F* const queries = dynamic_shared<F>();
  F* const keys = queries + Tile::kTile;
  F* const values = keys + Tile::kTile;
  F* const weights = values + Tile::kTile;
  load_queries<D>(queries, a, p);
  OnlineSoftmax<F, kOwn> running;
  F sums[kOwn][D / kRowLanes];
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    begin_softmax(running.maximum[r], running.total[r], a, p, own + r, lane == 0);
#pragma unroll
    for (int i = 0; i < D / kRowLanes; ++i) sums[r][i] = 0;
  }
  for (int64_t j0 = p.begin; j0 < p.end; j0 += Tile::kRows) {
    __syncthreads();
    load_keys<D>(keys, all_keys, a, p, j0);
    load_keys<D>(values, all_values, a, p, j0);
    __syncthreads();
    F scores[kOwn][kColumns];
    inner_products<D>(scores, queries + own * Tile::kStride, keys + lane * Tile::kStride);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) scores[r][c] = capped(scores[r][c], a.cap);
      hide_columns<Tile::kRows>(scores[r], p.t, p.query(own + r), j0);
    }
    softmax_tile(running, scores, sums);
#pragma unroll
    for (int r = 0; r < kOwn; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        weights[(own + r) * Tile::kScoreStride + lane + kRowLanes * c] = scores[r][c];
    __syncwarp();
    weighted_sums<D>(sums, weights + own * Tile::kScoreStride, values + 4 * lane);
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const F all = warp_sum<kRowLanes>(running.total[r]);
    if (own + r >= p.t.rows) continue;
    if (p.parts == 1) {
      store_row<false, D>(out_row(a, p, own + r), sums[r], all == 0 ? F{0} : F{1} / all, a.width);
      continue;
    }
    const int64_t row = partial_row(a, p, own + r);
    if (lane == 0)
      a.partial_lse[row] = all == 0 ? F{-kInfinity} : running.maximum[r] + log2_of(all);
    if (all != 0) store_row<false, D>(a.partial + row * a.width, sums[r], F{1} / all, a.width);
  }
}

constexpr int kMergeThreads = 64;

// One row of one head of a sequence with several parts: merges them in order.
template <class T>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(cpu::PagedAttention<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t token = blockIdx.x, head = blockIdx.y;
  int64_t low = 0, high = a.sequences;  // the last sequence that starts at or before the token
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (a.cu_q[middle] <= token ? low : high) = middle;
  }
  // Empty sequences end where the sequence of the token starts: they are before it.
  if (token >= a.cu_q[a.sequences]) return;
  const int64_t queries = a.cu_q[low + 1] - a.cu_q[low];
  const int64_t parts = cpu::KvSplits::of(queries, a.lengths[low]).count;
  if (parts == 1) return;
  const int64_t first = low * cpu::kMaxPagedParts + token - a.cu_q[low];
  const F* const lse = a.partial_lse + first * a.heads + head;
  const int64_t stride = queries * a.heads;
  F maximum = -kInfinity, total = 0;
  for (int64_t s = 0; s < parts; ++s)
    maximum = lse[s * stride] > maximum ? lse[s * stride] : maximum;
  const F base = maximum == -kInfinity ? F{0} : maximum;
  for (int64_t s = 0; s < parts; ++s) total += exp2_of(lse[s * stride] - base);
  const F factor = total == 0 ? F{0} : F{1} / total;
  const F* const partial = a.partial + (first * a.heads + head) * a.width;
  T* const out = a.out.data + token * a.out.row + head * a.out.head;
  for (int64_t d = threadIdx.x; d < a.width; d += kMergeThreads) {
    F sum = 0;
    for (int64_t s = 0; s < parts; ++s) {
      const F weight = exp2_of(lse[s * stride] - base);
      if (weight > 0) sum += weight * partial[s * stride * a.width + d];  // else it is not written
    }
    out[d] = static_cast<T>(sum * factor);
  }
}

constexpr int kCopyThreads = 128;

// N elements at a time; kStore: into the pools.
template <class T, int N, bool kStore>
__global__ void __launch_bounds__(kCopyThreads) move_rows_kernel(cpu::PagedRows<T> a) {
  begin_kernel();
  using Elements = Pack<T, N>;
  const int64_t packs = a.width / N, per_row = a.kv_heads * packs;
  const int64_t row = blockIdx.x, slot = a.slots[row];
  if (kStore && slot < 0) return;
  for (int64_t i = threadIdx.x; i < per_row; i += kCopyThreads) {
    const int64_t head = i / packs, column = i % packs * N;
    const int64_t at =
        ((slot / a.block_size * a.kv_heads + head) * a.block_size + slot % a.block_size) * a.width +
        column;
    auto* const k =
        reinterpret_cast<Elements*>(a.k.data + row * a.k.row + head * a.k.head + column);
    auto* const v =
        reinterpret_cast<Elements*>(a.v.data + row * a.v.row + head * a.v.head + column);
    if constexpr (kStore) {
      *reinterpret_cast<Elements*>(a.k_pool + at) = *k;
      *reinterpret_cast<Elements*>(a.v_pool + at) = *v;
    } else {
      *k = slot < 0 ? Elements{} : *reinterpret_cast<const Elements*>(a.k_pool + at);
      *v = slot < 0 ? Elements{} : *reinterpret_cast<const Elements*>(a.v_pool + at);
    }
  }
}

// Whether every row of every head is aligned to whole packs.
template <class T>
bool whole_packs(const cpu::PagedRows<T>& a) {
  constexpr int kN = kPack<T>;
  return a.k.row % kN == 0 && a.k.head % kN == 0 && a.v.row % kN == 0 && a.v.head % kN == 0 &&
         a.width % kN == 0;
}

template <class T, bool kStore>
void move_rows(Context& gpu, const char* op, const cpu::PagedRows<T>& a) {
  with_pack<T>(
      whole_packs(a) ? a.width : 1,
      [&]<int N>() {
        launch(gpu, op, move_rows_kernel<T, N, kStore>,
               {.blocks = {a.rows}, .threads = kCopyThreads}, a);
      },
      a.k.data, a.v.data, a.k_pool, a.v_pool);
}

// One warp per row of keys or values of one head; N numbers of it at a time.
template <class T, int N>
__global__ void __launch_bounds__(kCopyThreads)
    encode_rows_kernel(cpu::PagedRows<T> a, cpu::PagedPools pools) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t number = static_cast<int64_t>(blockIdx.x) * (kCopyThreads / kWarp) +
                         static_cast<int>(threadIdx.x) / kWarp;
  const int64_t t = number / (2 * a.kv_heads), head = number / 2 % a.kv_heads;
  if (t >= a.rows) return;
  const int64_t slot = a.slots[t];
  if (slot < 0) return;
  const auto view = number % 2 == 0 ? a.k : a.v;
  const cpu::PagedPool pool = number % 2 == 0 ? pools.k : pools.v;
  const int64_t row =
      (slot / a.block_size * a.kv_heads + head) * a.block_size + slot % a.block_size;
  const T* const from = view.data + t * view.row + head * view.head;
  uint8_t* const to = static_cast<uint8_t*>(pool.rows) + row * a.width;
  float largest = 0;
  bool finite = true;
  for (int64_t c = lane * N; c < a.width; c += kWarp * N) {
    const auto numbers = *reinterpret_cast<const Pack<T, N>*>(from + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float magnitude = fabsf(static_cast<float>(numbers.v[i]));
      largest = magnitude > largest ? magnitude : largest;
      finite = finite && magnitude <= FLT_MAX;
    }
  }
  largest = warp_max(largest);
  const KvScale scale =
      kv_scale(pools.type.codes, largest, __all_sync(0xffffffffu, finite ? 1 : 0) != 0);
  if (lane == 0) pool.scale[row] = scale.stored;
  with_codes(pools.type.codes, [&]<KvCodes kCodes>() {
    for (int64_t c = lane * N; c < a.width; c += kWarp * N) {
      const auto numbers = *reinterpret_cast<const Pack<T, N>*>(from + c);
      Pack<uint8_t, N> codes;
#pragma unroll
      for (int i = 0; i < N; ++i)  // 0 x infinity is not 0
        codes.v[i] = scale.inverse == 0
                         ? uint8_t{0}
                         : code_of<kCodes>(static_cast<float>(numbers.v[i]), scale.inverse);
      *reinterpret_cast<Pack<uint8_t, N>*>(to + c) = codes;
    }
  });
}

template <class T>
void encode_rows(Context& gpu, const cpu::PagedRows<T>& a, const cpu::PagedPools& pools) {
  const int64_t rows = 2 * a.rows * a.kv_heads;
  with_pack<T>(
      whole_packs(a) ? a.width : 1,
      [&]<int N>() {
        launch(gpu, "paged_append", encode_rows_kernel<T, N>,
               {.blocks = {blocks_for(rows, kCopyThreads / kWarp)}, .threads = kCopyThreads}, a,
               pools);
      },
      a.k.data, a.v.data, static_cast<const T*>(pools.k.rows), static_cast<const T*>(pools.v.rows));
}

template <class T, class Pool>
void blocked_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a, const Pool& keys,
                             const Pool& values) {
  using F = compute_t<T>;
  with_width(a.width, [&]<int D>() {
    using Tile = Blocked<F, D>;
    launch(gpu, "paged_attention_parts", parts_kernel<T, D, Pool>,
           {.blocks = {a.parts * paged_slots(a, Tile::kRows), a.kv_heads},
            .threads = kBlockedThreads,
            .shared = (3 * Tile::kTile + Tile::kScores) * static_cast<int64_t>(sizeof(F))},
           a, keys, values);
  });
}

template <class T>
void blocked_parts(Context& gpu, const cpu::PagedAttention<T>& a, const cpu::PagedPools& pools) {
  if (pools.type.codes == KvCodes::kNone)
    return blocked_paged_attention(gpu, a, Numbers<T>{a.k}, Numbers<T>{a.v});
  if constexpr (!std::is_same_v<T, double>) {
    const auto codes = [&](const cpu::PagedPool& pool) {
      return Codes{static_cast<const uint8_t*>(pool.rows), pool.scale, pools.type.codes};
    };
    blocked_paged_attention(gpu, a, codes(pools.k), codes(pools.v));
  }
}

}  // namespace

template <class T>
void paged_attention(Context& gpu, const cpu::PagedAttention<T>& a, const cpu::PagedPools& pools) {
  bool computed = false;
  if constexpr (sizeof(T) == 2) computed = mma_paged_attention(gpu, a, pools);
  if (!computed) blocked_parts(gpu, a, pools);
  count_attention(gpu, computed ? AttentionPath::kPagedTensorCores : AttentionPath::kPagedPlain);
  if (a.parts == 1) return;
  launch(gpu, "paged_attention_merge", merge_kernel<T>,
         {.blocks = {a.tokens, a.heads}, .threads = kMergeThreads}, a);
}

template <class T>
void paged_append(Context& gpu, const cpu::PagedRows<T>& a, const cpu::PagedPools& pools) {
  if (pools.type.codes == KvCodes::kNone) return move_rows<T, true>(gpu, "paged_append", a);
  if constexpr (!std::is_same_v<T, double>) encode_rows(gpu, a, pools);
}

template <class T>
void paged_gather(Context& gpu, const cpu::PagedRows<T>& a) {
  move_rows<T, false>(gpu, "paged_gather", a);
}

#define TRIREME_INSTANTIATE(T)                                                               \
  template void paged_attention<T>(Context&, const cpu::PagedAttention<T>&,                  \
                                   const cpu::PagedPools&);                                  \
  template void paged_append<T>(Context&, const cpu::PagedRows<T>&, const cpu::PagedPools&); \
  template void paged_gather<T>(Context&, const cpu::PagedRows<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
