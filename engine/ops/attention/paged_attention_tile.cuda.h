// Parts shared by the GPU kernels of paged attention. For CUDA sources only.
//
// The grid is (slots of tiles times parts of a sequence's keys, key/value heads). The rows of a
// tile are the queries of all heads that share the key/value head, row = query * group + head in
// the group, so that keys and values are loaded once for all of them. Slots are those of
// attention_tile.cuda.h, for rows instead of queries. The number of slots is
// floor(rows of the batch / rows of a tile) + number of sequences, however the tokens are
// distributed over sequences.
#pragma once

#include "engine/ops/attention/attention_tile.cuda.h"
#include "engine/ops/attention/paged_attention.kernels.h"

namespace trireme::cuda {

struct PagedTile {
  AttentionTile t;     // of the sequence; row0 and rows count rows as above
  int64_t begin, end;  // keys that the tile's rows see in this part; begin: a multiple of kKeys
  // part: of the sequence's `parts` parts; group: number of heads that share kv_head.
  int64_t sequence, part, parts, kv_head, group;
  const int32_t* blocks;  // the sequence's row of the block table

  // Query of a tile row, counted in its sequence.
  __device__ int64_t query(int64_t row) const { return (t.row0 + row) / group; }
  // Row of q, and head, of a tile row.
  __device__ int64_t token(int64_t row) const { return t.first_query + query(row); }
  __device__ int64_t head(int64_t row) const { return kv_head * group + (t.row0 + row) % group; }
};

// Number of slots for tiles of `rows` rows, at least 1: padding is cleared even without sequences.
template <class T>
int64_t paged_slots(const cpu::PagedAttention<T>& a, int64_t rows) {
  return a.sequences == 0 ? 1 : a.tokens * (a.heads / a.kv_heads) / rows + a.sequences;
}

// Zeroes the rows of out that belong to no sequence, for the heads of this thread block. Called
// only if blockIdx.x == 0.
template <class T>
__device__ void clear_paged_padding(const cpu::PagedAttention<T>& a) {
  const int64_t group = a.heads / a.kv_heads, first = a.cu_q[a.sequences];
  for (int64_t at = threadIdx.x; at < (a.tokens - first) * group * a.width; at += blockDim.x) {
    const int64_t row = at / a.width, head = static_cast<int64_t>(blockIdx.y) * group + row % group;
    a.out.data[(first + row / group) * a.out.row + head * a.out.head + at % a.width] =
        static_cast<T>(compute_t<T>{0});
  }
}

// Tile of this thread block; t.rows == 0: no work. kRows: rows of a tile; kKeys: keys per
// iteration, a divisor of kPartTile.
template <int kRows, int kKeys, class T>
__device__ PagedTile find_paged_tile(const cpu::PagedAttention<T>& a) {
  constexpr int64_t kUnlimited = int64_t{1} << 40;
  PagedTile p;
  p.t.rows = 0;
  p.part = blockIdx.x % a.parts;
  p.kv_head = blockIdx.y;
  p.group = a.heads / a.kv_heads;
  const int64_t slot = blockIdx.x / a.parts;
  if (a.sequences == 0) return p;
  const auto first_slot = [&](int64_t n) { return a.cu_q[n] * p.group / kRows + n; };
  int64_t n = 0, high = a.sequences;  // the last sequence that starts at or before the slot
  while (high - n > 1) {
    const int64_t middle = (n + high) / 2;
    (first_slot(middle) <= slot ? n : high) = middle;
  }
  p.sequence = n;
  p.blocks = a.table + n * a.max_blocks;
  p.t.first_query = a.cu_q[n];
  p.t.queries = a.cu_q[n + 1] - p.t.first_query;
  p.t.first_key = 0;
  p.t.keys = a.lengths[n];
  p.t.offset = p.t.keys - p.t.queries;
  p.t.window = a.window > 0 ? a.window : 2 * kUnlimited;
  p.t.row0 = (slot - first_slot(n)) * kRows;
  const int64_t rows = smaller(kRows, p.t.queries * p.group - p.t.row0);
  const auto parts = cpu::KvSplits::of(p.t.queries, p.t.keys);
  p.parts = parts.count;
  if (p.part >= p.parts || rows <= 0) return p;
  p.t.rows = static_cast<int>(rows);
  const int64_t first_key = p.part * parts.keys;
  p.begin = larger(first_key, p.t.keys_begin(p.query(0)) / kKeys * kKeys);
  p.end = smaller(first_key + parts.keys, p.t.keys_end(p.query(p.t.rows - 1) + 1));
  return p;
}

// Initial softmax state of a tile row. A sink is a key before all others, with a value of 0, and
// belongs to the first part. counts: true in one thread of the row, which adds the sink's
// exponential to `total`.
template <class F, class T>
__device__ void begin_softmax(F& maximum, F& total, const cpu::PagedAttention<T>& a,
                              const PagedTile& p, int64_t row, bool counts) {
  const bool sink = a.sinks != nullptr && p.part == 0 && row < p.t.rows;
  maximum = sink ? static_cast<F>(static_cast<double>(to_compute(a.sinks[p.head(row)])) * kLog2E)
                 : F{-kInfinity};
  total = sink && counts ? F{1} : F{0};
}

// Row of a pool for key j of the sequence.
template <class T>
__device__ int64_t pool_row(const cpu::PagedAttention<T>& a, const PagedTile& p, int64_t j) {
  const auto size = static_cast<uint32_t>(a.block_size), key = static_cast<uint32_t>(j);
  const int64_t block = p.blocks[key / size];
  return (block * a.kv_heads + p.kv_head) * a.block_size + key % size;
}

// Index of a tile row in partial_lse and partial.
template <class T>
__device__ int64_t partial_row(const cpu::PagedAttention<T>& a, const PagedTile& p, int64_t row) {
  return (p.sequence * cpu::kMaxPagedParts + p.part * p.t.queries + p.query(row)) * a.heads +
         p.head(row);
}
template <class T>
__device__ T* out_row(const cpu::PagedAttention<T>& a, const PagedTile& p, int64_t row) {
  return a.out.data + p.token(row) * a.out.row + p.head(row) * a.out.head;
}

}  // namespace trireme::cuda
