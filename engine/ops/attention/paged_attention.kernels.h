// Kernels of engine/ops/attention/paged_attention.h.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/kv_codes.h"

namespace trireme::cpu {

inline constexpr int64_t kMaxPagedHeadDim = 256;

template <class T>
struct PagedAttention {
  using C = compute_t<T>;
  HeadView<const T> q;
  HeadView<T> out;
  const T *k,
      *v;  // (blocks, kv_heads, block_size, width); null for pools of another type than T. The
           // CPU reads PagedPools instead.
  // (sequences, max_blocks), (sequences + 1) and (sequences): block_table, cu_q, context_lens
  const int32_t *table, *cu_q, *lengths;
  const T* sinks;  // (heads); null: none
  int64_t sequences, tokens, heads, kv_heads, width, block_size, max_blocks, max_queries;
  C scale;
  C cap;           // soft cap of base-2 scores: soft_cap * log2(e); 0: none
  int64_t window;  // 0: unlimited
  // GPU only: upper bound of the number of parts (KvSplits) of any sequence. If sequence n has
  // several parts, part p of query i stores two results for each head, at row p * queries + i of n:
  // its softmax-weighted mean of values in partial (sequences, kMaxPagedParts, heads, width), and
  // the base-2 logarithm of its sum of exponentials in partial_lse (sequences, kMaxPagedParts,
  // heads). A part without visible keys has -inf, and its mean may be undefined.
  int64_t parts;
  C *partial, *partial_lse;
};

// Split of one sequence's keys over thread blocks of a GPU (flash-decoding), independent of other
// sequences. There are enough parts that few sequences of one query fill the device. Many queries
// fill it themselves: a sequence has several parts only if parts * queries <= kMaxPagedParts.
// Within this limit there is about one part per kPartKeys keys. A part has a multiple of
// kPartTile keys, except the last, which has the rest.
inline constexpr int64_t kMaxPagedParts = 32, kPartKeys = 256, kPartTile = 64;
struct KvSplits {
  int64_t count, keys;  // number of parts, at least 1; keys of a part

  static TRIREME_HOST_DEVICE KvSplits of(int64_t queries, int64_t keys) {
    const int64_t most = queries > kMaxPagedParts || queries < 1 ? 1 : kMaxPagedParts / queries;
    const int64_t wanted = (keys + kPartKeys - 1) / kPartKeys;
    const int64_t count = wanted < 1 ? 1 : wanted < most ? wanted : most;
    const int64_t tiles = (keys + count * kPartTile - 1) / (count * kPartTile);
    const int64_t part = (tiles < 1 ? 1 : tiles) * kPartTile;
    const int64_t used = (keys + part - 1) / part;
    return {used < 1 ? 1 : used, part};
  }
};

// Pool of keys or of values, (blocks, kv_heads, block_size, width).
struct PagedPool {
  void* rows;
  float* scale;  // (blocks, kv_heads, block_size) for codes, else null
};

struct PagedPools {
  PagedPool k, v;
  KvType type;
  // CPU scratch: paged_scratch() elements of the compute type per thread, and (sequences + 1)
  // offsets of work items.
  void* scratch;
  int64_t* items;
};

// CPU tile: at most kPagedRows rows, by kPagedKeys keys. A row is a query of one of the heads that
// share a key/value head. The keys, in 32 bits, stay in the first-level cache.
inline constexpr int64_t kPagedRows = 64, kPagedKeys = 32;
// Elements of scratch per thread. padded_width: the head's width, rounded up to kMaxFloatLanes.
constexpr int64_t paged_scratch(int64_t padded_width) {
  return 2 * (kPagedRows + kPagedKeys) * padded_width + kPagedRows * (kPagedKeys + 2);
}

template <class T>
struct PagedRows {
  // (blocks, kv_heads, block_size, width); null for pools of another type than T
  T *k_pool, *v_pool;
  HeadView<T> k, v;      // (rows, kv_heads, width)
  const int64_t* slots;  // (rows)
  int64_t rows, kv_heads, width, block_size;
};

TRIREME_CPU_KERNEL(paged_attention,
                   (const PagedAttention<T>& a, const PagedPools& pools, int threads))
// For pools of another type than that of k and v; a.k_pool and a.v_pool are not used. T is not
// double.
TRIREME_CPU_KERNEL(paged_append, (const PagedRows<T>& a, const PagedPools& pools, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// Pools of T, or of codes (not for double); codes and their scales are in `pools`.
template <class T>
TRIREME_CUDA_DECL void paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                                       const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_append(Context& gpu, const cpu::PagedRows<T>& a,
                                    const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_gather(Context& gpu, const cpu::PagedRows<T>& a);

// Computes the parts of paged_attention with tensor cores, before they are merged, and `out` of
// sequences with one part; T is bf16 or f16. Returns false, with nothing done, for heads of more
// than 128 elements, or if rows of q or of a pool are not 16-byte aligned or not a multiple of 16
// bytes.
template <class T>
bool mma_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                         const cpu::PagedPools& pools);

}  // namespace trireme::cuda
