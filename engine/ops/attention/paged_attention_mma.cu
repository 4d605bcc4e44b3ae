// The parts of paged attention on tensor cores: the threads load tiles of 64 keys together, and
// each of the four warps computes all 16 rows of the block for 16 of the keys, with its own
// softmax; the four are merged at the end, in the order of the warps.
#include "engine/ops/attention/attention_mma.cuda.h"
#include "engine/ops/attention/paged_attention_tile.cuda.h"
#include "engine/ops/attention/paged_codes.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kRows = 16, kKeys = 64;
constexpr int kWarps = kMmaThreads / kWarp;
constexpr int kWarpKeys = kKeys / kWarps;
constexpr int kTiles = kWarpKeys / 8;

// Tiles of keys and values in shared memory, each of kKeys rows of kMmaStride<D> elements. start()
// starts fetching those from key j0 on; take() waits for them and starts the next, from key `next`
// on.
//
// For pools of T: copied unchanged, one tile of each while the other is used.
template <class T, int D>
class NumberTiles {
 public:
  static constexpr int kTile = kKeys * kMmaStride<D>;
  static constexpr int64_t kBytes = 4 * kTile * static_cast<int64_t>(sizeof(T));
  __device__ NumberTiles(const cpu::PagedAttention<T>& a, const cpu::PagedPools&,
                         const PagedTile& p, T* shared)
      : a_(a), p_(p), shared_(shared) {}

  __device__ void start(int64_t j0) {
    constexpr int kChunks = D / 8;
    T* const keys = shared_ + next_ * kTile;
#pragma unroll
    for (int at = 0; at < kKeys * kChunks; at += kMmaThreads) {
      const int chunk = at + static_cast<int>(threadIdx.x);
      const int row = chunk / kChunks, column = chunk % kChunks * 8;
      const bool valid = j0 + row < p_.end && column < a_.width;
      const int64_t from = valid ? pool_row(a_, p_, j0 + row) * a_.width + column : 0;
      copy_async_16(keys + row * kMmaStride<D> + column, a_.k + from, valid);
      copy_async_16(keys + 2 * kTile + row * kMmaStride<D> + column, a_.v + from, valid);
    }
  }
  __device__ void take(int64_t next) {
    wait_copies<0>();
    __syncthreads();
    next_ ^= 1;
    if (next < p_.end) start(next);
    commit_copies();
  }
  // Keys and values of the tile that was taken.
  __device__ const T* keys() const { return shared_ + (next_ ^ 1) * kTile; }
  __device__ const T* values() const { return keys() + 2 * kTile; }
  template <int kTiles>
  __device__ void scale_scores(WarpTile<kTiles>&, int) const {}

 private:
  const cpu::PagedAttention<T>& a_;
  const PagedTile& p_;
  T* shared_;
  int next_ = 0;
};

// For pools of codes: 16 codes per load into registers, while the previous tile is used. Keys are
// decoded without their scales, which are applied to the scores; values are multiplied by theirs.
template <class T, int D>
class CodeTiles {
  using Chunk = Pack<uint32_t, 4>;
  static constexpr int kOfARow = D / 16, kChunks = kKeys * kOfARow / kMmaThreads;

 public:
  static constexpr int kTile = kKeys * kMmaStride<D>;
  static constexpr int64_t kBytes =
      2 * kTile * static_cast<int64_t>(sizeof(T)) + kKeys * static_cast<int64_t>(sizeof(float));
  __device__ CodeTiles(const cpu::PagedAttention<T>& a, const cpu::PagedPools& pools,
                       const PagedTile& p, T* shared)
      : a_(a),
        pools_(pools),
        p_(p),
        shared_(shared),
        key_scales_(reinterpret_cast<float*>(shared + 2 * kTile)) {}

  __device__ void start(int64_t j0) {
    const auto* const keys = static_cast<const uint8_t*>(pools_.k.rows);
    const auto* const values = static_cast<const uint8_t*>(pools_.v.rows);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = row_of(i), column = column_of(i);
      key_codes_[i] = value_codes_[i] = Chunk{};
      value_scale_[i] = 0;
      if (j0 + row >= p_.end || column >= a_.width) continue;
      const int64_t at = pool_row(a_, p_, j0 + row);
      key_codes_[i] = *reinterpret_cast<const Chunk*>(keys + at * a_.width + column);
      value_codes_[i] = *reinterpret_cast<const Chunk*>(values + at * a_.width + column);
      value_scale_[i] = pools_.v.scale[at];
    }
    const int64_t own = j0 + static_cast<int>(threadIdx.x);
    key_scale_ = 0;
    if (threadIdx.x < kKeys && own < p_.end) key_scale_ = pools_.k.scale[pool_row(a_, p_, own)];
  }
  __device__ void take(int64_t next) {
    __syncthreads();  // until the previous tile has been read
    with_codes(pools_.type.codes, [&]<KvCodes kCodes>() { store<kCodes>(); });
    if (next < p_.end) start(next);
    __syncthreads();
  }
  __device__ const T* keys() const { return shared_; }
  __device__ const T* values() const { return shared_ + kTile; }
  // Applies the scales to scores of a warp's keys, the tile's from `first` on.
  template <int kTiles>
  __device__ void scale_scores(WarpTile<kTiles>& s, int first) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float scale = key_scales_[first + 8 * n + lane_column() + e];
        s.d[n][e] *= scale;
        s.d[n][2 + e] *= scale;
      }
  }

 private:
  __device__ static int row_of(int i) {
    return (i * kMmaThreads + static_cast<int>(threadIdx.x)) / kOfARow;
  }
  __device__ static int column_of(int i) {
    return (i * kMmaThreads + static_cast<int>(threadIdx.x)) % kOfARow * 16;
  }
  template <KvCodes kCodes>
  __device__ void store() {
    if (threadIdx.x < kKeys) key_scales_[threadIdx.x] = key_scale_;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      T* const key = shared_ + row_of(i) * kMmaStride<D> + column_of(i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Chunk k, v;
#pragma unroll
        for (int two = 0; two < 4; ++two) {
          const uint32_t kc = key_codes_[i].v[2 * half + two / 2] >> (two % 2 * 16);
          const uint32_t vc = value_codes_[i].v[2 * half + two / 2] >> (two % 2 * 16);
          k.v[two] = exact_two<T>(code_number<kCodes>(kc), code_number<kCodes>(kc >> 8));
          v.v[two] = pack_two<T>(value_scale_[i] * code_number<kCodes>(vc),
                                 value_scale_[i] * code_number<kCodes>(vc >> 8));
        }
        *reinterpret_cast<Chunk*>(key + 8 * half) = k;
        *reinterpret_cast<Chunk*>(key + kTile + 8 * half) = v;
      }
    }
  }

  const cpu::PagedAttention<T>& a_;
  const cpu::PagedPools& pools_;
  const PagedTile& p_;
  T* shared_;
  float* key_scales_;
  Chunk key_codes_[kChunks], value_codes_[kChunks];
  float value_scale_[kChunks], key_scale_ = 0;
};

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

// Results of a warp for the merge: sums (kRows, D + 4), and for each row maximum and total.
template <int D>
struct WarpResult {
  static constexpr int kStride = D + 4;
  float sums[kRows * kStride];
  float maximum[kRows], total[kRows];
};

template <int D>
__device__ void leave(WarpResult<D>& to, const OnlineSoftmax<float, 2>& w,
                      const WarpTile<D / 8>& sums) {
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

// Merges the warps' results of a row.
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
    if (p.parts == 1) {
      out_row(a, p, row)[column] = static_cast<T>(total == 0 ? 0.0f : sum / total);
      continue;
    }
    const int64_t to = partial_row(a, p, row);
    if (column == 0) a.partial_lse[to] = total == 0 ? -kInfinity : maximum + log2f(total);
    a.partial[to * a.width + column] = total == 0 ? 0.0f : sum / total;
  }
}

template <class Tiles, int D, class T>
constexpr int64_t shared_bytes() {
  static_assert(static_cast<int64_t>(kWarps * sizeof(WarpResult<D>)) <= Tiles::kBytes,
                "the results lie where the tiles were");
  return static_cast<int64_t>(sizeof(T)) * kRows * kMmaStride<D> + Tiles::kBytes;
}

template <class T, int D, class Tiles>
__global__ void __launch_bounds__(kMmaThreads, D <= 64 ? 3 : 2)
    parts_kernel(cpu::PagedAttention<T> a, cpu::PagedPools pools) {
  begin_kernel();
  if (blockIdx.x == 0) clear_paged_padding(a);
  const auto p = find_paged_tile<kRows, kKeys>(a);
  if (p.t.rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const queries = dynamic_shared<T>();
  T* const shared = queries + kRows * kMmaStride<D>;
  Tiles tiles(a, pools, p, shared);
  start_queries<D>(queries, a, p);
  if (p.begin < p.end) tiles.start(p.begin);
  commit_copies();
  // The first warp has the sinks.
  OnlineSoftmax<float, 2> running{{-kInfinity, -kInfinity}, {0, 0}};
  if (warp == 0)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      begin_softmax(running.maximum[r], running.total[r], a, p, lane_row() + 8 * r,
                    lane_column() == 0);
  WarpTile<D / 8> sums;
  sums.clear();
  wait_copies<0>();
  __syncthreads();
  uint32_t rows[D / 16][4];
  load_rows<D>(rows, queries);
  const float scale = static_cast<float>(static_cast<double>(a.scale) * kLog2E);
  for (int64_t j0 = p.begin; j0 < p.end; j0 += kKeys) {
    tiles.take(j0 + kKeys);
    const int own = warp * kWarpKeys;
    const int64_t first = j0 + own;
    const SeenColumns seen[2] = {
        seen_columns<Side::kQueries, kWarpKeys>(p.t, p.query(lane_row()), first),
        seen_columns<Side::kQueries, kWarpKeys>(p.t, p.query(lane_row() + 8), first)};
    WarpTile<kTiles> s;
    row_products<D>(s, rows, tiles.keys() + own * kMmaStride<D>);
    tiles.scale_scores(s, own);
    scale_and_hide(s, scale, a.cap, seen);
    softmax<D>(running, s, sums);
    add_weighted<D>(sums, s, tiles.values() + own * kMmaStride<D>);
  }
  __syncthreads();  // until the tiles have been read: the results replace them
  auto* const results = reinterpret_cast<WarpResult<D>*>(shared);
  leave(results[warp], running, sums);
  __syncthreads();
  merge_warps(results, a, p);
}

template <class T, int D, class Tiles>
void start_parts(Context& gpu, const cpu::PagedAttention<T>& a, const cpu::PagedPools& pools) {
  launch(gpu, "paged_attention_parts", parts_kernel<T, D, Tiles>,
         {.blocks = {a.parts * paged_slots(a, kRows), a.kv_heads},
          .threads = kMmaThreads,
          .shared = shared_bytes<Tiles, D, T>()},
         a, pools);
}

// Whether rows of codes are whole loads.
bool whole_loads(const cpu::PagedPool& pool, int64_t width) {
  return reinterpret_cast<uintptr_t>(pool.rows) % 16 == 0 && width % 16 == 0;
}

}  // namespace

template <class T>
bool mma_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                         const cpu::PagedPools& pools) {
  if (a.width > 128 || !mma_rows(a.q, a.width)) return false;
  const bool narrow = a.width <= 64;
  if (pools.type.codes != KvCodes::kNone) {
    if (!whole_loads(pools.k, a.width) || !whole_loads(pools.v, a.width)) return false;
    narrow ? start_parts<T, 64, CodeTiles<T, 64>>(gpu, a, pools)
           : start_parts<T, 128, CodeTiles<T, 128>>(gpu, a, pools);
    return true;
  }
  const cpu::HeadView<const T> k{a.k, a.width, a.width}, v{a.v, a.width, a.width};
  if (!mma_rows(k, a.width) || !mma_rows(v, a.width)) return false;
  narrow ? start_parts<T, 64, NumberTiles<T, 64>>(gpu, a, pools)
         : start_parts<T, 128, NumberTiles<T, 128>>(gpu, a, pools);
  return true;
}

template bool mma_paged_attention<bf16>(Context&, const cpu::PagedAttention<bf16>&,
                                        const cpu::PagedPools&);
template bool mma_paged_attention<f16>(Context&, const cpu::PagedAttention<f16>&,
                                       const cpu::PagedPools&);

}  // namespace trireme::cuda
