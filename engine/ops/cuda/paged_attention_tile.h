// What the kernels of paged attention share. For CUDA sources only.
//
// The grid is (parts of a sequence's keys by tiles of rows, key/value heads, sequences); the rows are
// the queries of all heads that share the key/value head, row = query * group + head in the group, so
// that keys and values are loaded once for all of them.
#pragma once

#include "engine/ops/cuda/attention_tile.h"
#include "engine/ops/cuda/paged_attention.h"

namespace trireme::cuda {

struct PagedTile {
  AttentionTile t;     // of the sequence; row0 and rows count rows as above
  int64_t begin, end;  // keys that the tile's rows see in this part; begin is in whole tiles
  int64_t split, kv_head, group;
  const int32_t* blocks;  // of the sequence

  __device__ int64_t query(int64_t row) const { return (t.row0 + row) / group; }
  // The row of q and the head of one of the tile's rows.
  __device__ int64_t token(int64_t row) const { return t.first_query + query(row); }
  __device__ int64_t head(int64_t row) const { return kv_head * group + (t.row0 + row) % group; }
};

// kRows: of a tile; kKeys: keys at a time.
template <int kRows, int kKeys, class T>
__device__ PagedTile find_paged_tile(const cpu::PagedAttention<T>& a) {
  constexpr int64_t kUnlimited = int64_t{1} << 40;
  const int64_t n = blockIdx.z;
  PagedTile p;
  p.split = blockIdx.x % a.splits;
  p.kv_head = blockIdx.y;
  p.group = a.heads / a.kv_heads;
  p.blocks = a.table + n * a.most_blocks;
  p.t.first_query = a.cu_q[n];
  p.t.queries = a.cu_q[n + 1] - p.t.first_query;
  p.t.first_key = 0;
  p.t.keys = a.lengths[n];
  p.t.offset = p.t.keys - p.t.queries;
  p.t.window = a.window > 0 ? a.window : 2 * kUnlimited;
  p.t.row0 = blockIdx.x / a.splits * kRows;
  const int64_t rows = smaller(kRows, p.t.queries * p.group - p.t.row0);
  const int64_t first_key = p.split * a.split_keys;
  p.t.rows = first_key < p.t.keys && rows > 0 ? static_cast<int>(rows) : 0;
  if (p.t.rows == 0) return p;
  p.begin = larger(first_key, p.t.keys_begin(p.query(0)) / kKeys * kKeys);
  p.end = smaller(first_key + a.split_keys, p.t.keys_end(p.query(p.t.rows - 1) + 1));
  return p;
}

// Which of a pool's rows key j of the sequence is.
template <class T>
__device__ int64_t pool_row(const cpu::PagedAttention<T>& a, const PagedTile& p, int64_t j) {
  const auto size = static_cast<uint32_t>(a.block_size), key = static_cast<uint32_t>(j);
  const int64_t block = p.blocks[key / size];
  return (block * a.kv_heads + p.kv_head) * a.block_size + key % size;
}

// Row of partial_lse, and with the width of partial.
template <class T>
__device__ int64_t partial_row(const cpu::PagedAttention<T>& a, const PagedTile& p, int64_t row) {
  return (p.split * a.tokens + p.token(row)) * a.heads + p.head(row);
}

}  // namespace trireme::cuda
