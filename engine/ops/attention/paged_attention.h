// Paged attention (Kwon et al., SOSP 2023): the new tokens of each sequence attend to all its keys,
// which are in blocks of a pool. Used by the decode and chunked-prefill steps of serving.
//
//   out[t, h] = sum_j softmax_j(scale * q[t, h] . k[j, h']) v[j, h'],   h' = h / (H / Hkv)
// Sequence n has queries cu_q[n] .. cu_q[n+1], at most args.max_queries, which are the last of its
// context_lens[n] tokens: query i of Lq sees the keys j <= i + context_lens[n] - Lq, with window >
// 0 only the last `window` of those.
//
//   q, out          (T, H, D)         unit stride in D, any stride in T and H; D <= 256
//   k_pool, v_pool  (B, Hkv, P, D)    contiguous; P tokens in a block
//   block_table     (S, M) int32      key j of sequence n is row j % P of block
//                                     block_table[n, j / P]
//   cu_q            (S + 1) int32     ascends from 0 to at most T
//   context_lens    (S) int32         each at most M P and args.max_context_len
// q and out have one float dtype, and so have the pools except as described next. Rows of out past
// cu_q[S] become zero. The CPU checks the values of block_table, cu_q and context_lens (Error),
// also that no sequence has more queries than tokens; a GPU does not, and a query without keys
// gives zero.
//
// Pools for 32-bit or 16-bit operands may be 8-bit codes (uint8) with a scale per row, (B, Hkv, P)
// float32 (engine/ops/attention/kv_codes.h); on the CPU also another 32-bit or 16-bit type than the
// operands'. Elements are rounded when they are stored. The CPU computes in float32 with the stored
// numbers, and reads and widens a tile of keys and values once for up to 64 rows of queries and
// heads that share it. A GPU's tensor cores multiply the queries by the codes; the keys' scales
// multiply these sums in float32; the elements of v are multiplied by their scale and rounded to
// the type of q. Where a GPU has no tensor-core kernel (float32 operands, D > 128) it computes in
// float32.
//
// Reasons for the pool's layout: one head's keys of a block are a contiguous run of P D elements (4
// KiB for P = 16 and D = 128 in 16 bits), which a thread block loads in whole 16-byte packs; a
// block is identified by a number alone, so that sequences share prefixes and a tensor-parallel
// rank has a pool of its own heads; and codes need only additional scales (B, Hkv, P), since a row
// of D is written at once.
//
// A result depends only on its own sequence, neither on the others computed with it nor on the
// table's width; on the CPU it has the same bits for any split of its queries into chunks.
#pragma once

#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/context.h"

namespace trireme {

// With a window, a caller may drop the leading tokens of a sequence that no query sees. If their
// number is a multiple of this, the result on the CPU has the same bits.
inline constexpr int64_t kPagedDropAlignment = 32;

struct PagedAttentionArgs {
  double scale = 1.0;       // usually 1 / sqrt(D)
  int64_t window = 0;       // 0: unlimited
  int64_t max_queries = 1;  // upper bound of the queries of a sequence; checked on the CPU
  // Upper bound of context_lens; 0: M P. A GPU launches as many thread blocks as this many keys
  // need, so pass the current maximum, not a limit.
  int64_t max_context_len = 0;
  double soft_cap = 0.0;   // as in AttentionArgs
  ConstTensor sinks = {};  // (H), q's dtype: as in AttentionArgs; absent: none
};

// max_context_len, positive, rounded up to one of few values (256, 512, ..., 4096), or 0 (no bound)
// if it is above them. Equal values launch the same thread blocks, so recorded GPU work is keyed by
// the result.
int64_t paged_context_bound(int64_t max_context_len);

// Scales of pools of codes. kNone: the pools have no codes, and k and v are not used.
struct PagedScales {
  Tensor k, v;  // (B, Hkv, P) float32
  KvCodes codes = KvCodes::kNone;
};

void paged_attention(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k_pool,
                     const ConstTensor& v_pool, const ConstTensor& block_table,
                     const ConstTensor& cu_q, const ConstTensor& context_lens,
                     const PagedAttentionArgs& args, const PagedScales& scales = {});

// Stores the rows of k and v (T, Hkv, D; unit stride in D): row t is stored in slot slots[t], which
// is row slots[t] % P of block slots[t] / P. A row with a negative slot is dropped. slots (T)
// int64, below B P (Error on the CPU, not checked on a GPU); non-negative ones must be distinct.
void paged_append(Ctx& ctx, const Tensor& k_pool, const Tensor& v_pool, const ConstTensor& k,
                  const ConstTensor& v, const ConstTensor& slots, const PagedScales& scales = {});

// The reverse, for pools in the type of k and v: row t is read from slot slots[t]; zero if that is
// negative.
void paged_gather(Ctx& ctx, const Tensor& k, const Tensor& v, const ConstTensor& k_pool,
                  const ConstTensor& v_pool, const ConstTensor& slots);

}  // namespace trireme
