// Attention forward without tensor cores: a thread block takes a tile of queries of one head and
// iterates over the tiles of keys that they see with an online softmax.
#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/attention_tile.cuda.h"

namespace trireme::cuda {
namespace {

// Starts from the results of earlier calls in out_sum and lse if attention is by segments, else
// from zero. `own`: first of the thread's rows in the tile.
template <int D, class T, class F, int kOwn>
__device__ void begin_rows(OnlineSoftmax<F, kOwn>& w, F (&sums)[kOwn][D / kRowLanes],
                           const cpu::AttentionForward<T>& a, const AttentionTile& t, int own,
                           int64_t head) {
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int64_t row = t.first_query + t.row0 + own + r;
    const bool used = own + r < t.rows;
    const F before = a.by_segments && used ? a.lse[head * a.tokens + row] : F{-kInfinity};
    const bool resumed = before != -kInfinity;
    w.maximum[r] = before * static_cast<F>(kLog2E);
    w.total[r] = resumed && lane == 0 ? F{1} : F{0};
    const F* from = a.out_sum.data + row * a.out_sum.row + head * a.out_sum.head;
#pragma unroll
    for (int i = 0; i < D / 32; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 4 * lane + 32 * i + e;
        sums[r][4 * i + e] = resumed && column < a.width ? from[column] : F{0};
      }
  }
}

// Writes the rows' probabilities, with dropout, to the tile `weights`.
template <int kStride, class T, class F, int kOwn, int kColumns>
__device__ void keep_weights(F* weights, const F (&p)[kOwn][kColumns],
                             const cpu::AttentionForward<T>& a, const AttentionTile& t, int own,
                             int64_t head, int64_t j0) {
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const bool drop = a.drop_threshold > 0 && own + r < t.rows;
    const uint64_t word =
        drop ? dropout_row(a, t.first_query + t.row0 + own + r, head) : uint64_t{0};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = static_cast<int>(threadIdx.x) % kRowLanes + kRowLanes * c;
      F weight = p[r][c];
      if (drop && weight > 0)
        weight *= dropout_factor(a, word, t.first_key + j0 + column, j0 + column);
      weights[(own + r) * kStride + column] = weight;
    }
  }
}

template <int D, class T, class F, int kOwn>
__device__ void finish_rows(const OnlineSoftmax<F, kOwn>& w, const F (&sums)[kOwn][D / kRowLanes],
                            const cpu::AttentionForward<T>& a, const AttentionTile& t, int own,
                            int64_t head) {
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const F total = warp_sum<kRowLanes>(w.total[r]);
    if (own + r >= t.rows) continue;
    const int64_t row = t.first_query + t.row0 + own + r;
    const F factor = total == 0 ? F{0} : F{1} / total;
    if (static_cast<int>(threadIdx.x) % kRowLanes == 0)
      a.lse[head * a.tokens + row] =
          total == 0 ? F{-kInfinity} : w.maximum[r] * static_cast<F>(kLn2) + log_of(total);
    if (a.by_segments)
      store_row<false, D>(a.out_sum.data + row * a.out_sum.row + head * a.out_sum.head, sums[r],
                          factor, a.width);
    else
      store_row<false, D>(a.out.data + row * a.out.row + head * a.out.head, sums[r], factor,
                          a.width);
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kBlockedThreads, 2) forward_kernel(cpu::AttentionForward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Tile = Blocked<F, D>;
  constexpr int kOwn = Tile::kOwn, kColumns = Tile::kColumns;
  // The last queries of a sequence see most keys: their blocks start first.
  const auto t = find_tile<Side::kQueries, Tile::kRows>(a, gridDim.x - 1 - blockIdx.x);
  if (t.rows == 0) return;
  const int64_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int own = static_cast<int>(threadIdx.x) / kRowLanes * kOwn;  // first of the thread's rows
  F* const queries = dynamic_shared<F>();
  F* const keys = queries + Tile::kTile;
  F* const values = keys + Tile::kTile;
  F* const weights = values + Tile::kTile;
  // Scores are in units of log 2.
  load_tile<D>(queries, a.q, head, t.first_query + t.row0, t.rows, a.width,
               static_cast<F>(static_cast<double>(a.scale) * kLog2E));
  OnlineSoftmax<F, kOwn> running;
  F sums[kOwn][D / kRowLanes];
  begin_rows<D>(running, sums, a, t, own, head);
  __syncwarp();  // a row's lanes have read lse before one of them writes it at the end
  const int64_t end = t.keys_end(t.row0 + t.rows);
  for (int64_t j0 = t.keys_begin(t.row0) / Tile::kRows * Tile::kRows; j0 < end; j0 += Tile::kRows) {
    __syncthreads();  // until the previous tiles have been read
    load_tile<D>(keys, a.k, kv_head, t.first_key + j0, t.keys - j0, a.width, F{1});
    load_tile<D>(values, a.v, kv_head, t.first_key + j0, t.keys - j0, a.width, F{1});
    __syncthreads();
    F scores[kOwn][kColumns];
    inner_products<D>(scores, queries + own * Tile::kStride, keys + lane * Tile::kStride);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) scores[r][c] = capped(scores[r][c], a.cap);
      hide_columns<Tile::kRows>(scores[r], t, t.row0 + own + r, j0);
    }
    softmax_tile(running, scores, sums);
    keep_weights<Tile::kScoreStride>(weights, scores, a, t, own, head, j0);
    __syncwarp();  // a row's weights come from the lanes of one warp
    weighted_sums<D>(sums, weights + own * Tile::kScoreStride, values + 4 * lane);
  }
  finish_rows<D>(running, sums, a, t, own, head);
}

constexpr int kClearThreads = 128;

template <class F>
__global__ void __launch_bounds__(kClearThreads)
    clear_kernel(cpu::HeadView<F> out, F* lse, int64_t tokens, int64_t width) {
  begin_kernel();
  const int64_t row = blockIdx.x, head = blockIdx.y;
  F* to = out.data + row * out.row + head * out.head;
  for (int64_t d = threadIdx.x; d < width; d += kClearThreads) to[d] = 0;
  if (lse != nullptr && threadIdx.x == 0) lse[head * tokens + row] = -kInfinity;
}

template <class F>
void clear(Context& gpu, const cpu::HeadView<F>& out, F* lse, int64_t rows, int64_t heads,
           int64_t width) {
  launch(gpu, "attention_clear", clear_kernel<F>,
         {.blocks = {rows, heads}, .threads = kClearThreads}, out, lse, rows, width);
}

}  // namespace

template <class T>
void clear_attention(Context& gpu, const cpu::AttentionForward<T>& a) {
  clear(gpu, a.out_sum, a.lse, a.tokens, a.heads, a.width);
}

template <class T>
void clear_attention(Context& gpu, const cpu::AttentionBackward<T>& a) {
  using F = compute_t<T>;
  clear<F>(gpu, a.dq_sum, nullptr, a.tokens, a.heads, a.width);
  clear<F>(gpu, a.dk_sum, nullptr, a.keys, a.kv_heads, a.width);
  clear<F>(gpu, a.dv_sum, nullptr, a.keys, a.kv_heads, a.width);
}

template <class T>
void blocked_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  using F = compute_t<T>;
  with_width(a.width, [&]<int D>() {
    using Tile = Blocked<F, D>;
    launch(gpu, "attention_forward", forward_kernel<T, D>,
           {.blocks = {slots_of(a, Side::kQueries, Tile::kRows), a.heads},
            .threads = kBlockedThreads,
            .shared = (3 * Tile::kTile + Tile::kScores) * static_cast<int64_t>(sizeof(F))},
           a);
  });
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template void clear_attention<T>(Context&, const cpu::AttentionForward<T>&);  \
  template void clear_attention<T>(Context&, const cpu::AttentionBackward<T>&); \
  template void blocked_attention_forward<T>(Context&, const cpu::AttentionForward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
