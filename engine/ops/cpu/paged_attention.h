// CPU kernels of engine/ops/paged_attention.h.
#pragma once

#include "engine/ops/cpu/attention.h"
#include "engine/ops/kv_codes.h"

namespace trireme::cpu {

inline constexpr int64_t kWidestPagedHead = 256;

template <class T>
struct PagedAttention {
  using C = compute_t<T>;
  HeadView<const T> q;
  HeadView<T> out;
  const T *k,
      *v;  // (blocks, kv_heads, block_size, width); on the CPU, and of codes, PagedPools has them
  const int32_t *table, *cu_q, *lengths;
  int64_t sequences, tokens, heads, kv_heads, width, block_size, most_blocks, most_queries;
  C scale;
  int64_t window;  // 0: unlimited
  // On a GPU the keys of a sequence are cut into `splits` parts of split_keys. Part p of (t, h) leaves
  // its mean of values in partial (splits, tokens, heads, width) and the base-2 logarithm of its sum
  // of exponentials in partial_lse (splits, tokens, heads).
  int64_t splits, split_keys;
  C *partial, *partial_lse;
};

// One of keys and values, (blocks, kv_heads, block_size, width).
struct PagedPool {
  void* rows;
  float* scale;  // (blocks, kv_heads, block_size) of codes, else null
};

struct PagedPools {
  PagedPool k, v;
  KvType type;
  // Scratch: paged_scratch() elements for each thread, and (sequences + 1) numbers of items.
  void* scratch;
  int64_t* items;
};

// Queries of the heads that share a key/value head are computed `kPagedRows` at a time, against `kPagedKeys`
// keys: those of the latter in 32 bits stay in the first cache.
inline constexpr int64_t kPagedRows = 64, kPagedKeys = 32;
constexpr int64_t paged_scratch(int64_t padded_width) {
  return 2 * (kPagedRows + kPagedKeys) * padded_width + kPagedRows * (kPagedKeys + 2);
}

template <class T>
struct PagedRows {
  T *k_pool, *v_pool;  // (blocks, kv_heads, block_size, width)
  HeadView<T> k, v;
  const int64_t* slots;
  int64_t rows, kv_heads, width, block_size;
};

TRIREME_CPU_KERNEL(paged_attention,
                   (const PagedAttention<T>& a, const PagedPools& pools, int threads))
// k and v in another type than the pools', whose pointers in `a` are not read. T: not double.
TRIREME_CPU_KERNEL(paged_append, (const PagedRows<T>& a, const PagedPools& pools, int threads))

}  // namespace trireme::cpu
