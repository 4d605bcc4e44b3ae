// Backward attention. With S = scale q k^T, P = exp(S - lse), delta = rowsum(dout * out):
//   dv = P^T dout      dS = P * (dout v^T - delta)      dq = scale dS k      dk = scale dS^T q
// P is recomputed from lse block by block. With a soft cap c, P is of c tanh(S / c), and dS has the
// factor 1 - tanh(S / c)^2.
//
// Work is divided in one of two ways. Both sum every gradient over the same blocks in the same
// order, so that the choice (which depends on the number of threads) does not change a bit of the
// result:
//   together   an item is one key/value head of one sequence and computes all three gradients;
//   apart      an item is a block of queries (dq), then a block of keys (dk, dv). Scores and
//              dout v^T are computed twice, but there are enough items for any number of threads.
#include <omp.h>

#include "engine/ops/attention/attention_tile.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr double kLog2E = 1.44269504088896340736;

// Scratch of one thread.
template <class C>
struct Work {
  C *queries_t, *dout_t, *dq_t;  // (D, kAttentionBlock)
  C *queries, *dout;        // (kAttentionBlock, padded), if the operand cannot be read in place
  C *keys, *values;         // (kAttentionBlock, padded), likewise
  C *probability, *dscore;  // (kAttentionBlock keys, kAttentionBlock queries)
  C *dk, *dv;               // (owned keys, padded)
  alignas(64) C lse[kAttentionBlock], delta[kAttentionBlock], factor[kAttentionBlock];

  Work(C* scratch, int64_t padded, int64_t owned_keys) {
    C** const parts[] = {&queries_t, &dout_t, &dq_t, &queries, &dout, &keys, &values};
    for (C** part : parts) {
      *part = scratch;
      scratch += kAttentionBlock * padded;
    }
    probability = scratch;
    dscore = probability + kAttentionBlock * kAttentionBlock;
    dk = dscore + kAttentionBlock * kAttentionBlock;
    dv = dk + owned_keys * padded;
  }
};

// Operands and statistics of a block of queries of one head, used with every block of keys.
template <class C>
struct QueryBlock {
  int64_t i0, rows;
  Rows<C> queries, dout;
  uint64_t counters[kAttentionBlock];
};

template <class T>
compute_t<T> row_product(const T* x, const T* y, int64_t width) {
  using C = compute_t<T>;
  constexpr int kN = kLanes<C>;
  Vec<C> total{};
  int64_t d = 0;
  for (; d + kN <= width; d += kN) total += load(x + d) * load(y + d);
  if (d < width) total += load_partial(x + d, width - d) * load_partial(y + d, width - d);
  return sum(total);
}

template <class T, class C>
void load_query_block(QueryBlock<C>& out, const AttentionBackward<T>& a, Work<C>& w,
                      const Sequence& s, int64_t head, int64_t i0) {
  const int64_t rows = smaller(kAttentionBlock, s.queries - i0), t0 = s.first_query + i0;
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes);
  const T* q = a.q.data + t0 * a.q.row + head * a.q.head;
  const T* dout = a.dout.data + t0 * a.dout.row + head * a.dout.head;
  const T* result = a.out.data + t0 * a.out.row + head * a.out.head;
  out.i0 = i0;
  out.rows = rows;
  pack_transposed(w.queries_t, q, a.q.row, rows, a.width, static_cast<C>(a.scale * kLog2E));
  pack_transposed(w.dout_t, dout, a.dout.row, rows, a.width, C(1));
  out.queries = rows_of(q, a.q.row, rows, a.width, w.queries, padded, true);
  out.dout = rows_of(dout, a.dout.row, rows, a.width, w.dout, padded, true);
  if (a.drop_threshold > 0) dropout_counters(out.counters, a, s, head, i0);
  const C none = __builtin_inff();
  for (int64_t i = 0; i < kAttentionBlock; ++i) {
    // A query without keys has lse = -inf: +inf makes its probabilities 0 instead of NaN.
    const C lse = i < rows ? a.lse[head * a.tokens + t0 + i] : none;
    w.lse[i] = lse == -none ? none : lse * static_cast<C>(kLog2E);
    w.delta[i] =
        i < rows ? row_product(dout + i * a.dout.row, result + i * a.out.row, a.width) : C(0);
  }
}

// Replaces scores by probabilities P, and dout v^T by dS. w.probability: scores, under the soft cap
// where there is one, -infinity for invisible keys.
template <bool kCapped, class C>
TRIREME_INLINE void differentiate_row(Work<C>& w, const Rectangle& span, int64_t row, C cap) {
  constexpr int kN = kLanes<C>;
  for (int64_t column = span.column0; column < span.column1; column += kN) {
    const int64_t at = row * kAttentionBlock + column;
    const Vec<C> score = load(w.probability + at);
    const Vec<C> p = fast_exp2_small(score - load(w.lse + column));
    Vec<C> ds = p * (load(w.dscore + at) - load(w.delta + column));
    if constexpr (kCapped) {
      // A hidden score is -infinity: 0 times its slope would be NaN.
      const Vec<C> t = score / cap;
      ds = t < C(-1) ? Vec<C>{} : ds * (C(1) - t * t);
    }
    store(w.dscore + at, ds);
    store(w.probability + at, p);
  }
}

// w.probability = P (with dropout: the factor of v), w.dscore = dS of a block.
template <class T, class C>
void differentiate_softmax(const AttentionBackward<T>& a, Work<C>& w, const Sequence& s,
                           const QueryBlock<C>& block, const Spans& spans) {
  if (a.drop_threshold > 0)
    for_each_dropout(a, s, block.counters, spans, [&](int64_t at, Vec<C> factor) {
      store(w.dscore + at, load(w.dscore + at) * factor);
    });
  for (int n = 0; n < spans.flat_count; ++n) {
    const Rectangle& span = spans.flat[n];
    for (int64_t row = span.row0; row < span.row1; ++row)
      a.cap > 0 ? differentiate_row<true>(w, span, row, a.cap)
                : differentiate_row<false>(w, span, row, a.cap);
  }
  if (a.drop_threshold > 0)
    for_each_dropout(a, s, block.counters, spans, [&](int64_t at, Vec<C> factor) {
      store(w.probability + at, load(w.probability + at) * factor);
    });
}

// Adds the contribution of one block of queries and one block of keys to the requested gradients:
// dq to w.dq_t, dk and dv to (kAttentionBlock, padded) sums. dk and dq lack the factor `scale`.
template <bool kQueries, bool kKeys, class T, class C>
void accumulate_block(const AttentionBackward<T>& a, Work<C>& w, const Sequence& s, int64_t kv_head,
                      const QueryBlock<C>& block, int64_t j0, C* dk, C* dv) {
  const Spans spans = spans_of<C>(s, block.i0, j0);
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), used = ceil_to(a.width, kLanes<C>);
  const int64_t first = s.first_key + j0;
  const Rows<C> k = rows_of(a.k.data + first * a.k.row + kv_head * a.k.head, a.k.row, spans.rows,
                            a.width, w.keys, padded, false);
  const Rows<C> v = rows_of(a.v.data + first * a.v.row + kv_head * a.v.head, a.v.row, spans.rows,
                            a.width, w.values, padded, false);
  for (int n = 0; n < spans.flat_count; ++n) {
    const Rectangle& span = spans.flat[n];
    const int64_t at = span.row0 * kAttentionBlock + span.column0;
    const int64_t rows = span.row1 - span.row0, columns = span.column1 - span.column0;
    tile_product<false, C>({w.probability + at, kAttentionBlock, k.data + span.row0 * k.stride,
                            k.stride, 1, w.queries_t + span.column0, kAttentionBlock, rows, columns,
                            a.width});
    tile_product<false, C>({w.dscore + at, kAttentionBlock, v.data + span.row0 * v.stride, v.stride,
                            1, w.dout_t + span.column0, kAttentionBlock, rows, columns, a.width});
  }
  if (a.cap > 0) cap_scores(w.probability, spans, a.cap);
  mask_scores(w.probability, s, spans);
  differentiate_softmax(a, w, s, block, spans);
  if constexpr (kKeys)
    for (int n = 0; n < spans.flat_count; ++n) {
      const Rectangle& span = spans.flat[n];
      const int64_t at = span.row0 * kAttentionBlock + span.column0, to = span.row0 * padded;
      const int64_t rows = span.row1 - span.row0;
      // Queries end with the block: the rest of its last vector is not read.
      const int64_t queries = smaller(span.column1, block.rows) - span.column0;
      tile_product<true, C>({dv + to, padded, w.probability + at, kAttentionBlock, 1,
                             block.dout.data + span.column0 * block.dout.stride, block.dout.stride,
                             rows, used, queries});
      tile_product<true, C>({dk + to, padded, w.dscore + at, kAttentionBlock, 1,
                             block.queries.data + span.column0 * block.queries.stride,
                             block.queries.stride, rows, used, queries});
    }
  if constexpr (kQueries)
    for (int n = 0; n < spans.tall_count; ++n) {
      const Rectangle& span = spans.tall[n];
      tile_product<true, C>({w.dq_t + span.column0, kAttentionBlock, k.data + span.row0 * k.stride,
                             1, k.stride, w.dscore + span.row0 * kAttentionBlock + span.column0,
                             kAttentionBlock, a.width, span.column1 - span.column0,
                             span.row1 - span.row0});
    }
}

// All blocks of keys seen by the block of queries; completes dq.
template <bool kKeys, class T, class C>
void query_block_backward(const AttentionBackward<T>& a, Work<C>& w, const Sequence& s,
                          int64_t head, int64_t i0) {
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), kv_head = head / (a.heads / a.kv_heads);
  QueryBlock<C> block;
  load_query_block(block, a, w, s, head, i0);
  for (int64_t x = 0; x < a.width * kAttentionBlock; ++x) w.dq_t[x] = 0;
  const int64_t end = keys_end(s, i0 + block.rows);
  for (int64_t j0 = keys_begin(s, i0) / kAttentionBlock * kAttentionBlock; j0 < end;
       j0 += kAttentionBlock)
    accumulate_block<true, kKeys>(a, w, s, kv_head, block, j0, w.dk + (kKeys ? j0 * padded : 0),
                                  w.dv + (kKeys ? j0 * padded : 0));
  for (int64_t i = 0; i < kAttentionBlock; ++i) w.factor[i] = a.scale;
  const auto finish = [&]<bool kAdd>(const auto& dq) {
    unpack_transposed<kAdd>(dq.data + (s.first_query + i0) * dq.row + head * dq.head, dq.row,
                            w.dq_t, block.rows, a.width, w.factor);
  };
  if (a.by_segments)
    finish.template operator()<true>(a.dq_sum);
  else
    finish.template operator()<false>(a.dq);
}

template <class T, class C>
void clear_key_sums(const AttentionBackward<T>& a, Work<C>& w, int64_t keys) {
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes);
  for (int64_t x = 0; x < keys * padded; ++x) w.dk[x] = 0;
  for (int64_t x = 0; x < keys * padded; ++x) w.dv[x] = 0;
}

// Writes the sums of `keys` keys, starting at key j0 of the sequence.
template <class T, class C>
void finish_keys(const AttentionBackward<T>& a, const Work<C>& w, const Sequence& s,
                 int64_t kv_head, int64_t j0, int64_t keys) {
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), first = s.first_key + j0;
  const auto finish = [&]<bool kAdd>(const auto& to, const C* sums, C factor) {
    unpack_rows<kAdd>(to.data + first * to.row + kv_head * to.head, to.row, sums, padded, keys,
                      a.width, factor);
  };
  if (a.by_segments) {
    finish.template operator()<true>(a.dk_sum, w.dk, a.scale);
    finish.template operator()<true>(a.dv_sum, w.dv, C(1));
  } else {
    finish.template operator()<false>(a.dk, w.dk, a.scale);
    finish.template operator()<false>(a.dv, w.dv, C(1));
  }
}

// --- the items of work --------------------------------------------------------------------------

template <class T>
compute_t<T>* scratch_of_thread(const AttentionBackward<T>& a) {
  return a.scratch + omp_get_thread_num() * a.scratch_per_thread;
}

template <class T>
void backward_together(const AttentionBackward<T>& a, int threads) {
  using C = compute_t<T>;
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), group = a.heads / a.kv_heads;
  const int64_t items = a.sequences * a.kv_heads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (items > 1)
  for (int64_t item = 0; item < items; ++item) {
    Work<C> w(scratch_of_thread(a), padded, a.owned_keys);
    const Sequence s = sequence_of(a, item / a.kv_heads);
    const int64_t kv_head = item % a.kv_heads;
    clear_key_sums(a, w, s.keys);
    for (int64_t g = 0; g < group; ++g)
      for (int64_t i0 = 0; i0 < s.queries; i0 += kAttentionBlock)
        query_block_backward<true>(a, w, s, kv_head * group + g, i0);
    finish_keys(a, w, s, kv_head, 0, s.keys);
  }
}

template <class T>
void key_block_backward(const AttentionBackward<T>& a, const Sequence& s, int64_t kv_head,
                        int64_t j0, compute_t<T>* scratch) {
  using C = compute_t<T>;
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), group = a.heads / a.kv_heads;
  const int64_t keys = smaller(kAttentionBlock, s.keys - j0), end = queries_end(s, j0 + keys);
  Work<C> w(scratch, padded, a.owned_keys);
  clear_key_sums(a, w, keys);
  QueryBlock<C> block;
  for (int64_t g = 0; g < group; ++g)
    for (int64_t i0 = queries_begin(s, j0) / kAttentionBlock * kAttentionBlock; i0 < end;
         i0 += kAttentionBlock) {
      load_query_block(block, a, w, s, kv_head * group + g, i0);
      accumulate_block<false, true>(a, w, s, kv_head, block, j0, w.dk, w.dv);
    }
  finish_keys(a, w, s, kv_head, j0, keys);
}

template <class T>
void backward_apart(const AttentionBackward<T>& a, int threads) {
  using C = compute_t<T>;
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes);
  int64_t *by_queries = a.items, *by_keys = a.items + a.sequences + 1;
  by_queries[0] = by_keys[0] = 0;
  for (int64_t n = 0; n < a.sequences; ++n) {
    const Sequence s = sequence_of(a, n);
    by_queries[n + 1] =
        by_queries[n] + a.heads * ((s.queries + kAttentionBlock - 1) / kAttentionBlock);
    by_keys[n + 1] = by_keys[n] + a.kv_heads * ((s.keys + kAttentionBlock - 1) / kAttentionBlock);
  }
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t item = 0; item < by_queries[a.sequences]; ++item) {
      const int64_t n = find_item(by_queries, a.sequences, item), local = item - by_queries[n];
      const Sequence s = sequence_of(a, n);
      const int64_t blocks = (s.queries + kAttentionBlock - 1) / kAttentionBlock;
      Work<C> w(scratch_of_thread(a), padded, a.owned_keys);
      query_block_backward<false>(a, w, s, local / blocks,
                                  (blocks - 1 - local % blocks) * kAttentionBlock);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < by_keys[a.sequences]; ++item) {
      const int64_t n = find_item(by_keys, a.sequences, item), local = item - by_keys[n];
      const Sequence s = sequence_of(a, n);
      const int64_t blocks = (s.keys + kAttentionBlock - 1) / kAttentionBlock;
      key_block_backward(a, s, local / blocks, local % blocks * kAttentionBlock,
                         scratch_of_thread(a));
    }
  }
}

// Whether whole heads occupy all threads. Counts blocks: 5 products each together, 7 apart.
template <class T>
bool heads_suffice(const AttentionBackward<T>& a, int threads) {
  int64_t total = 0, largest = 0, longest = 0;
  for (int64_t n = 0; n < a.sequences; ++n) {
    const Sequence s = sequence_of(a, n);
    const int64_t cost = ((s.queries + kAttentionBlock - 1) / kAttentionBlock) *
                         ((s.keys + kAttentionBlock - 1) / kAttentionBlock);
    total += cost;
    largest = larger(largest, cost);
    longest = larger(longest, s.keys);
  }
  if (longest > a.owned_keys) return false;
  const int64_t items = a.sequences * a.kv_heads;
  const int64_t rounds = larger(1, (items + threads - 1) / threads);
  const int64_t mean = total * a.kv_heads / larger(1, items);
  const int64_t together = larger(largest, rounds * mean);
  return 5 * together * threads <= 7 * total * a.kv_heads;
}

// As in the forward pass.
template <class T>
void clear_rows(const AttentionBackward<T>& a, int threads) {
  if (!a.by_segments) {
    const int64_t queries = a.cu_q[a.sequences], keys = a.cu_k[a.sequences];
    zero_rows(a.dq, queries, a.tokens, a.heads, a.width);
    zero_rows(a.dk, keys, a.keys, a.kv_heads, a.width);
    zero_rows(a.dv, keys, a.keys, a.kv_heads, a.width);
  } else if (a.clear) {
    zero_rows(a.dq_sum, 0, a.tokens, a.heads, a.width, threads);
    zero_rows(a.dk_sum, 0, a.keys, a.kv_heads, a.width, threads);
    zero_rows(a.dv_sum, 0, a.keys, a.kv_heads, a.width, threads);
  }
}

}  // namespace

template <class T>
void attention_backward(const AttentionBackward<T>& a, int threads) {
  clear_rows(a, threads);
  if (heads_suffice(a, threads))
    backward_together(a, threads);
  else
    backward_apart(a, threads);
}

template void attention_backward<double>(const AttentionBackward<double>&, int);
template void attention_backward<float>(const AttentionBackward<float>&, int);
template void attention_backward<bf16>(const AttentionBackward<bf16>&, int);
template void attention_backward<f16>(const AttentionBackward<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
