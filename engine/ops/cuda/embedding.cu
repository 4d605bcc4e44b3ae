#include <algorithm>
#include <limits>

#include "engine/ops/cuda/elements.h"
#include "engine/ops/cuda/embedding.h"

namespace trireme::cuda {
namespace {

template <class T, int N>
struct LookUp {
  cpu::EmbeddingForward<T> a;
  int64_t packs;  // in a row
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t t = quotient(item, packs), p = item - t * packs;
    const int64_t id = a.ids[t], number = id - a.first_entry;
    const bool known = id >= 0 && id < a.vocabulary;
    const bool here = number >= 0 && number < a.entries;
    if (known && !here && a.accumulate) return;  // another shard's
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

// The backward pass sorts the tokens by (id, t), so that each row of the table is added up by one block
// in the order of t. A token's place is the number of tokens before it: rows^2 comparisons, which cost
// less than the products of the same step by far, and need no passes that wait for one another.
constexpr int kPlaceThreads = 256;

// Adds to place[t] how many of the tokens of this block's part come before t; integers, so that the
// order of the additions does not matter.
__global__ void __launch_bounds__(kPlaceThreads)
    place_kernel(int32_t* place, const int32_t* ids, int64_t rows, int64_t part) {
  __shared__ int32_t tile[kPlaceThreads];
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kPlaceThreads + threadIdx.x;
  const int32_t id = t < rows ? ids[t] : 0;
  const int64_t begin = blockIdx.y * part, end = begin + part < rows ? begin + part : rows;
  int32_t before = 0;
  for (int64_t at = begin; at < end; at += kPlaceThreads) {
    __syncthreads();  // the tile before has been read
    const int64_t mine = at + threadIdx.x;
    // What is not there comes before nobody.
    tile[threadIdx.x] = mine < end ? ids[mine] : std::numeric_limits<int32_t>::max();
    __syncthreads();
    if (at + kPlaceThreads <= t) {  // all of the tile lies before t
#pragma unroll 8
      for (int i = 0; i < kPlaceThreads; ++i) before += tile[i] <= id ? 1 : 0;
    } else {
#pragma unroll 8
      for (int i = 0; i < kPlaceThreads; ++i)
        before += tile[i] < id || (tile[i] == id && at + i < t) ? 1 : 0;
    }
  }
  if (t < rows && before > 0) atomicAdd(&place[t], before);
}

struct PutInPlace {
  TokenOrder order;
  const int32_t* token_ids;
  __device__ void operator()(int64_t t) const {
    const int32_t place = order.place[t];
    order.tokens[place] = static_cast<int32_t>(t);
    order.ids[place] = token_ids[t];
  }
};

constexpr int kAddThreads = 128, kAhead = 8;  // kAhead: rows whose loads are under way together

// Block (x, y): where the tokens of an id begin at place x, adds all of them to the id's row, in the
// packs of columns from y * kAddThreads on.
template <class T, int N>
__global__ void __launch_bounds__(kAddThreads)
    add_rows_kernel(cpu::EmbeddingBackward<T> a, TokenOrder order) {
  using F = compute_t<T>;
  const int64_t first = blockIdx.x, packs = a.columns / N;
  const int64_t p = static_cast<int64_t>(blockIdx.y) * kAddThreads + threadIdx.x;
  const int32_t id = order.ids[first];
  const int64_t number = id - a.first_entry;
  if (number < 0 || number >= a.entries || p >= packs) return;
  if (first > 0 && order.ids[first - 1] == id) return;
  auto total = load_pack<F, N>(a.d_table, number * packs + p);
  bool more = true;
  for (int64_t at = first; more; at += kAhead) {
    Pack<T, N> dy[kAhead] = {};
    bool same[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      same[k] = at + k < a.rows && order.ids[at + k] == id;
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
  store_pack<F, N>(a.d_table, number * packs + p, total);
}

void order_tokens(Context& gpu, const TokenOrder& order, const int32_t* ids, int64_t rows) {
  fill_bytes(gpu, gpu.main, order.place, 0, rows * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t blocks = blocks_for(rows, kPlaceThreads);
  // Parts enough that few rows fill the device too, each whole tiles.
  const int64_t wanted =
      blocks_for(int64_t{4} * gpu.info.multiprocessors, std::max<int64_t>(blocks, 1));
  const int64_t part =
      std::max<int64_t>(1, blocks_for(blocks, std::min(wanted, std::max<int64_t>(blocks, 1)))) *
      kPlaceThreads;
  launch(gpu, "embedding_place", place_kernel,
         {.blocks = {blocks, blocks_for(rows, part)}, .threads = kPlaceThreads}, order.place, ids,
         rows, part);
  for_each_item(gpu, "embedding_order", rows, PutInPlace{order, ids});
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
  order_tokens(gpu, order, a.ids, a.rows);
  with_pack<F>(
      a.columns,
      [&]<int N>() {
        const int64_t chunks = blocks_for(a.columns / N, kAddThreads);
        launch(gpu, "embedding_backward", add_rows_kernel<T, N>,
               {.blocks = {a.rows, chunks}, .threads = kAddThreads}, a, order);
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
