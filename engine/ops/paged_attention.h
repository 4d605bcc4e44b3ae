// Attention of a few new tokens of each sequence over all its keys, which lie in blocks of a pool
// (PagedAttention, Kwon et al., SOSP 2023): the decoding step of serving.
//
//   out[t, h] = sum_j softmax_j(scale * q[t, h] . k[j, h']) v[j, h'],   h' = h / (H / Hkv)
// Sequence n holds queries cu_q[n] .. cu_q[n+1], at most args.most_queries, which are the last of
// its context_lens[n] tokens: query i of Lq sees the keys j <= i + context_lens[n] - Lq, with
// window > 0 only the last `window` of those.
//
//   q, out          (T, H, D)         unit stride in D, any stride in T and H; D <= 256
//   k_pool, v_pool  (B, Hkv, P, D)    contiguous; P tokens in a block
//   block_table     (S, M) int32      key j of sequence n is row j % P of block block_table[n, j / P]
//   cu_q (S + 1), context_lens (S)    int32; cu_q ascends from 0 to at most T, context_lens to
//                                     at most M P and args.longest_context
// One float dtype. Rows of out past cu_q[S], and those of queries without keys, become zero.
//
// Pools of operands in 32 or 16 bits may be codes of 8 bits (uint8) with a scale for each row, (B,
// Hkv, P) float32 (engine/ops/kv_codes.h); on the CPU also another such type than the operands'.
// Numbers are rounded when they are stored. The CPU computes with them in float32 as they were
// stored, and reads and widens a block of keys and values once for 64 rows of queries and heads
// that share it. A GPU's tensor cores multiply the queries with the codes, to whose sums the keys'
// scales come in float32, and round values to the type of q.
//
// Why the pool lies so: one head's keys of a block are one run of P D elements (4 KiB for P = 16
// and D = 128 in 16 bits), which a thread block loads in whole 16-byte packs; blocks are named by a
// number alone, so that sequences share prefixes and a rank of tensor parallelism holds a pool of
// its own heads; and codes need only scales (B, Hkv, P) beside them, since a row of D is what is
// written at once.
//
// A result depends on its own sequence alone, not on which others are computed beside it nor on the
// table's width; on the CPU it is the same bit for bit in whatever chunks its queries come.
#pragma once

#include "engine/ops/context.h"
#include "engine/ops/kv_codes.h"

namespace trireme {

struct PagedAttentionArgs {
  double scale = 1.0;  // usually 1 / sqrt(D)
  int64_t window = 0;  // 0: unlimited
  int64_t most_queries = 1;
  // No context is longer; 0: M P. A GPU starts as many blocks of threads as that many keys want, so
  // it should be what the sequences have, not what they may come to.
  int64_t longest_context = 0;
};

// longest_context rounded up such that few different values remain, all of which start the same
// blocks: what recorded work is distinguished by. 0: any.
int64_t paged_context_bound(int64_t longest_context);

// Of pools of codes.
struct PagedScales {
  Tensor k, v;  // (B, Hkv, P) float32
  KvCodes codes = KvCodes::kNone;
};

void paged_attention(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k_pool,
                     const ConstTensor& v_pool, const ConstTensor& block_table,
                     const ConstTensor& cu_q, const ConstTensor& context_lens,
                     const PagedAttentionArgs& args, const PagedScales& scales = {});

// Stores the rows of k and v (T, Hkv, D; unit stride in D): row t goes to slot slots[t], which is
// row slots[t] % P of block slots[t] / P. A negative slot's row is dropped. slots (T) int64, of
// which no two that are not negative may be the same.
void paged_append(Ctx& ctx, const Tensor& k_pool, const Tensor& v_pool, const ConstTensor& k,
                  const ConstTensor& v, const ConstTensor& slots, const PagedScales& scales = {});

// The opposite, of pools in the type of k and v: row t is what lies in slot slots[t]; zero where
// that is negative.
void paged_gather(Ctx& ctx, const Tensor& k, const Tensor& v, const ConstTensor& k_pool,
                  const ConstTensor& v_pool, const ConstTensor& slots);

}  // namespace trireme
