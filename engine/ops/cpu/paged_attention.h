// CPU kernels of engine/ops/paged_attention.h.
#pragma once

#include "engine/ops/cpu/attention.h"

namespace trireme::cpu {

inline constexpr int64_t kWidestPagedHead = 256;

template <class T>
struct PagedAttention {
  using C = compute_t<T>;
  HeadView<const T> q;
  HeadView<T> out;
  const T *k, *v;  // (blocks, kv_heads, block_size, width)
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

template <class T>
struct PagedRows {
  T *k_pool, *v_pool;  // (blocks, kv_heads, block_size, width)
  HeadView<T> k, v;
  const int64_t* slots;
  int64_t rows, kv_heads, width, block_size;
};

TRIREME_CPU_KERNEL(paged_attention, (const PagedAttention<T>& a, int threads))

}  // namespace trireme::cpu
