#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/rows/counting_order.cuda.h"
#include "engine/ops/rows/embedding.kernels.h"

namespace trireme::cuda {
namespace {

template <class T, int N>
struct LookUp {
  cpu::EmbeddingForward<T> a;
  int64_t packs;  // per row
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t t = quotient(item, packs), p = item - t * packs;
    const int64_t id = a.ids[t], number = id - a.first_entry;
    const bool known = id >= 0 && id < a.vocabulary;
    const bool here = number >= 0 && number < a.entries;
    if (known && !here && a.accumulate) return;  // of another shard
    Pack<T, N> e{};
    if (known && here) e = load_pack<T, N>(a.table, number * packs + p);
    if (!known) {
#pragma unroll
      for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(std::numeric_limits<F>::quiet_NaN());
    }
    if (a.accumulate) {
      const auto y = load_pack<T, N>(a.y, item);
#pragma unroll
      for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(y.v[i]) + to_compute(e.v[i]));
    }
    store_pack<T, N>(a.y, item, e);
  }
};

// The backward pass sorts the tokens by (row of the table, t), so that each row is summed by one
// block in the order of t: a stable counting sort per digit of the row's number, the lowest first.
// Ids without a row here are last, as a row after the table.

struct RowOfToken {
  const int32_t* ids;
  int64_t first, entries;
  __device__ int32_t token(int64_t i) const { return static_cast<int32_t>(i); }
  __device__ int32_t number(int64_t i) const {
    const int64_t row = ids[i] - first;
    return static_cast<int32_t>(row >= 0 && row < entries ? row : entries);
  }
};

// Result of an earlier digit's sort.
struct SortedRow {
  SortedTokens from;
  __device__ int32_t token(int64_t i) const { return from.tokens[i]; }
  __device__ int32_t number(int64_t i) const { return from.rows[i]; }
};

template <class From>
struct DigitOfRow {
  From from;
  int shift;
  uint32_t mask;
  __device__ int32_t operator()(int64_t i) const {
    return static_cast<int32_t>(static_cast<uint32_t>(from.number(i)) >> shift & mask);
  }
};

template <class From>
struct MoveRow {
  From from;
  SortedTokens to;
  __device__ void operator()(int64_t i, int64_t place) const {
    to.tokens[place] = from.token(i);
    to.rows[place] = from.number(i);
  }
};

constexpr int kAddThreads = 128, kAhead = 8;  // kAhead: rows loaded concurrently

// Block (x, y): if the tokens of a row start at place x, adds all of them to it, in the packs of
// columns from y * kAddThreads on.
template <class T, int N>
__global__ void __launch_bounds__(kAddThreads)
    add_rows_kernel(cpu::EmbeddingBackward<T> a, SortedTokens order) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t first = blockIdx.x, packs = a.columns / N;
  const int64_t p = static_cast<int64_t>(blockIdx.y) * kAddThreads + threadIdx.x;
  const int32_t row = order.rows[first];
  if (row >= a.entries || p >= packs) return;
  if (first > 0 && order.rows[first - 1] == row) return;
  auto total = load_pack<F, N>(a.d_table, row * packs + p);
  bool more = true;
  for (int64_t at = first; more; at += kAhead) {
    Pack<T, N> dy[kAhead] = {};
    bool same[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      same[k] = at + k < a.rows && order.rows[at + k] == row;
      if (same[k]) dy[k] = load_pack<T, N>(a.dy, order.tokens[at + k] * packs + p);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (!same[k]) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) total.v[i] += to_compute(dy[k].v[i]);
    }
    more = same[kAhead - 1];
  }
  store_pack<F, N>(a.d_table, row * packs + p, total);
}

template <class From>
void sort_by_digit(Context& gpu, const From& from, const SortedTokens& to, int shift, uint32_t mask,
                   const CountingScratch& order) {
  const DigitOfRow<From> digit{from, shift, mask};
  place_in_order<false>(gpu, "embedding_order", digit, MoveRow<From>{from, to}, order);
}

SortedTokens sort_tokens(Context& gpu, const TokenOrder& o, const RowOfToken& token, int64_t n) {
  // Digits of equal width, as few as kDigitBuckets permits.
  constexpr int kMaxBits = std::bit_width(static_cast<uint64_t>(kDigitBuckets)) - 1;
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(token.entries))));
  const int digits = (bits + kMaxBits - 1) / kMaxBits, width = (bits + digits - 1) / digits;
  const CountingScratch order{.counts = o.counts,
                              .totals = o.totals,
                              .n = n,
                              .buckets = int64_t{1} << width,
                              .chunks = order_chunks(n)};
  const uint32_t mask = (uint32_t{1} << width) - 1;
  SortedTokens sorted = o.sorted, other = o.other;
  sort_by_digit(gpu, token, sorted, 0, mask, order);
  for (int d = 1; d < digits; ++d) {
    sort_by_digit(gpu, SortedRow{sorted}, other, d * width, mask, order);
    std::swap(sorted, other);
  }
  return sorted;
}

}  // namespace

template <class T>
void embedding_forward(Context& gpu, const cpu::EmbeddingForward<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "embedding_forward", a.rows * packs, LookUp<T, N>{a, packs});
      },
      a.y, a.table);
}

template <class T>
void embedding_backward(Context& gpu, const cpu::EmbeddingBackward<T>& a, const TokenOrder& order) {
  using F = compute_t<T>;
  const SortedTokens sorted = sort_tokens(gpu, order, {a.ids, a.first_entry, a.entries}, a.rows);
  with_pack<F>(
      a.columns,
      [&]<int N>() {
        const int64_t chunks = blocks_for(a.columns / N, kAddThreads);
        launch(gpu, "embedding_backward", add_rows_kernel<T, N>,
               {.blocks = {a.rows, chunks}, .threads = kAddThreads}, a, sorted);
      },
      a.d_table, reinterpret_cast<const F*>(a.dy));
}

#define TRIREME_INSTANTIATE(T)                                                    \
  template void embedding_forward<T>(Context&, const cpu::EmbeddingForward<T>&);  \
  template void embedding_backward<T>(Context&, const cpu::EmbeddingBackward<T>&, \
                                      const TokenOrder&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
