// Forward attention: one item of work is a block of queries of one head, or, for a sequence with
// very few queries, all queries of one key/value head.
#include <omp.h>

#include "engine/ops/attention/attention_tile.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr double kLog2E = 1.44269504088896340736;
constexpr double kLn2 = 0.693147180559945309417;

TRIREME_INLINE float natural_log(float x) { return __builtin_logf(x); }
TRIREME_INLINE double natural_log(double x) { return __builtin_log(x); }

template <class T>
TRIREME_INLINE bool few_queries(const Attention<T>& a, const Sequence& s) {
  return !a.by_segments && s.queries <= kFewQueries &&
         s.queries * (a.heads / a.kv_heads) <= kAttentionBlock && a.drop_threshold == 0;
}

// Scratch of one thread, and the running softmax of a block of queries: base-2 maximum m and sum l.
template <class C>
struct Work {
  C *queries, *out, *keys, *values, *scores;
  alignas(64) C maximum[kAttentionBlock], total[kAttentionBlock], factor[kAttentionBlock];

  Work(C* scratch, int64_t padded) {
    queries = scratch;
    out = queries + kAttentionBlock * padded;
    keys = out + kAttentionBlock * padded;
    values = keys + kAttentionBlock * padded;
    scores = values + kAttentionBlock * padded;
    for (int64_t i = 0; i < kAttentionBlock; ++i) {
      maximum[i] = -__builtin_inff();
      total[i] = 0;
    }
  }
};

// Maximum to subtract: zero if no key was seen yet, so that exp2(-inf - maximum) is 0.
template <class V>
TRIREME_INLINE V finite_maximum(V m) {
  const V none = splat<V>(-__builtin_inff());
  return m == none ? V{} : m;
}

// Replaces the scores of one column of vectors, rows [row0, row1), by probabilities relative to the
// running maximum; updates it and the running sum. Returns whether older sums must be rescaled.
template <class C>
TRIREME_INLINE bool softmax_column(Work<C>& w, int64_t column, int64_t row0, int64_t row1) {
  using V = Vec<C>;
  C* scores = w.scores + column;
  // Independent chains, to hide the latency of max and add.
  V m[4], l[4];
  const V before = load(w.maximum + column);
  for (int c = 0; c < 4; ++c) m[c] = before;
  int64_t row = row0;
  for (; row + 4 <= row1; row += 4)
    for (int c = 0; c < 4; ++c) {
      const V s = load(scores + (row + c) * kAttentionBlock);
      m[c] = s > m[c] ? s : m[c];
    }
  for (; row < row1; ++row) {
    const V s = load(scores + row * kAttentionBlock);
    m[0] = s > m[0] ? s : m[0];
  }
  const V m01 = m[0] > m[1] ? m[0] : m[1], m23 = m[2] > m[3] ? m[2] : m[3];
  const V now = m01 > m23 ? m01 : m23;
  const V base = finite_maximum(now);
  const V rescale = fast_exp2_small(before - base);

  for (int c = 0; c < 4; ++c) l[c] = V{};
  const auto exponential = [&](int64_t r, V& part) {
    const V p = fast_exp2_small(load(scores + r * kAttentionBlock) - base);
    part += p;
    store(scores + r * kAttentionBlock, p);
  };
  for (row = row0; row + 4 <= row1; row += 4)
    for (int c = 0; c < 4; ++c) exponential(row + c, l[c]);
  for (; row < row1; ++row) exponential(row, l[0]);

  store(w.maximum + column, now);
  store(w.total + column, load(w.total + column) * rescale + ((l[0] + l[1]) + (l[2] + l[3])));
  store(w.factor + column, rescale);
  const auto moved = now != before;
  bool any = false;
  for (int i = 0; i < kLanes<C>; ++i) any |= moved[i] != 0;
  return any;
}

template <class C>
void softmax_block(Work<C>& w, const Spans& spans, int64_t width) {
  for (int n = 0; n < spans.tall_count; ++n) {
    const Rectangle& span = spans.tall[n];
    for (int64_t column = span.column0; column < span.column1; column += kLanes<C>) {
      if (!softmax_column(w, column, span.row0, span.row1)) continue;
      const Vec<C> rescale = load(w.factor + column);
      for (int64_t d = 0; d < width; ++d) {
        C* p = w.out + d * kAttentionBlock + column;
        store(p, load(p) * rescale);
      }
    }
  }
}

// One block of keys for a block of queries.
template <class T, class C>
void attend(const AttentionForward<T>& a, Work<C>& w, const Sequence& s, int64_t kv_head,
            const uint64_t (&counters)[kAttentionBlock], int64_t i0, int64_t j0) {
  const Spans spans = spans_of<C>(s, i0, j0);
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), first = s.first_key + j0;
  const Rows<C> k = rows_of(a.k.data + first * a.k.row + kv_head * a.k.head, a.k.row, spans.rows,
                            a.width, w.keys, padded, false);
  const Rows<C> v = rows_of(a.v.data + first * a.v.row + kv_head * a.v.head, a.v.row, spans.rows,
                            a.width, w.values, padded, false);
  for (int n = 0; n < spans.flat_count; ++n) {
    const Rectangle& span = spans.flat[n];
    tile_product<false, C>({w.scores + span.row0 * kAttentionBlock + span.column0, kAttentionBlock,
                            k.data + span.row0 * k.stride, k.stride, 1, w.queries + span.column0,
                            kAttentionBlock, span.row1 - span.row0, span.column1 - span.column0,
                            a.width});
  }
  if (a.cap > 0) cap_scores(w.scores, spans, a.cap);
  mask_scores(w.scores, s, spans);
  softmax_block(w, spans, a.width);
  if (a.drop_threshold > 0)
    for_each_dropout(a, s, counters, spans, [&](int64_t at, Vec<C> factor) {
      store(w.scores + at, load(w.scores + at) * factor);
    });
  for (int n = 0; n < spans.tall_count; ++n) {
    const Rectangle& span = spans.tall[n];
    tile_product<true, C>({w.out + span.column0, kAttentionBlock, v.data + span.row0 * v.stride, 1,
                           v.stride, w.scores + span.row0 * kAttentionBlock + span.column0,
                           kAttentionBlock, a.width, span.column1 - span.column0,
                           span.row1 - span.row0});
  }
}

// lse of a finished query, and the factor of its sum of values.
template <class C>
TRIREME_INLINE C finish_softmax(C maximum, C total, C* lse) {
  const bool none = total == 0;
  *lse = none ? -__builtin_inff() : maximum * static_cast<C>(kLn2) + natural_log(total);
  return none ? C(0) : C(1) / total;
}

// Starts the block's softmax from the results of earlier calls in out_sum and lse.
template <class T, class C>
void resume_block(const AttentionForward<T>& a, Work<C>& w, const C* sums, int64_t rows,
                  const C* lse) {
  pack_transposed(w.out, sums, a.out_sum.row, rows, a.width, C(1));
  for (int64_t i = 0; i < rows; ++i) {
    if (lse[i] == -__builtin_inff()) continue;
    w.maximum[i] = lse[i] * static_cast<C>(kLog2E);
    w.total[i] = 1;
  }
}

template <class T>
void block_forward(const AttentionForward<T>& a, const Sequence& s, int64_t head, int64_t block,
                   compute_t<T>* scratch) {
  using C = compute_t<T>;
  Work<C> w(scratch, ceil_to(a.width, kMaxFloatLanes));
  const int64_t i0 = block * kAttentionBlock, rows = smaller(kAttentionBlock, s.queries - i0);
  const int64_t t0 = s.first_query + i0, kv_head = head / (a.heads / a.kv_heads);
  C* lse = a.lse + head * a.tokens + t0;
  // Location of the sums if there are segments.
  C* sums = a.out_sum.data + t0 * a.out_sum.row + head * a.out_sum.head;
  // Scores are in units of log 2.
  pack_transposed(w.queries, a.q.data + t0 * a.q.row + head * a.q.head, a.q.row, rows, a.width,
                  static_cast<C>(a.scale * kLog2E));
  for (int64_t x = 0; x < a.width * kAttentionBlock; ++x) w.out[x] = 0;
  if (a.by_segments) resume_block(a, w, sums, rows, lse);
  uint64_t counters[kAttentionBlock] = {};
  if (a.drop_threshold > 0) dropout_counters(counters, a, s, head, i0);
  const int64_t end = keys_end(s, i0 + rows);
  for (int64_t j0 = keys_begin(s, i0) / kAttentionBlock * kAttentionBlock; j0 < end;
       j0 += kAttentionBlock)
    attend(a, w, s, kv_head, counters, i0, j0);
  for (int64_t i = 0; i < rows; ++i)
    w.factor[i] = finish_softmax(w.maximum[i], w.total[i], lse + i);
  if (a.by_segments)
    unpack_transposed<false>(sums, a.out_sum.row, w.out, rows, a.width, w.factor);
  else
    unpack_transposed<false>(a.out.data + t0 * a.out.row + head * a.out.head, a.out.row, w.out,
                             rows, a.width, w.factor);
}

// --- few queries --------------------------------------------------------------------------------

// Queries of all heads that share a key/value head, as rows: r = query * group + head in group.
// Scores and probabilities are (rows, kAttentionBlock); here the lanes are along D.
template <class C>
TRIREME_INLINE void score_row(C* scores, const C* query, Rows<C> k, int64_t begin, int64_t end,
                              int64_t padded) {
  constexpr int kN = kLanes<C>;
  for (int64_t j = begin; j < end; ++j) {
    Vec<C> dot[2] = {};
    const C* key = k.data + j * k.stride;
    int64_t d = 0;
    for (; d + 2 * kN <= padded; d += 2 * kN) {
      dot[0] = multiply_add(load(query + d), load(key + d), dot[0]);
      dot[1] = multiply_add(load(query + d + kN), load(key + d + kN), dot[1]);
    }
    if (d < padded) dot[0] = multiply_add(load(query + d), load(key + d), dot[0]);
    scores[j] = sum(dot[0] + dot[1]);
  }
}

// Probabilities of one row over the keys [begin, end) of the block; those of the block's other keys
// (of `keys`) become 0. Rescales the row's sum of values.
template <class C>
TRIREME_INLINE void softmax_row(Work<C>& w, int64_t r, int64_t begin, int64_t end, int64_t keys,
                                int64_t padded) {
  constexpr int kN = kLanes<C>;
  C* scores = w.scores + r * kAttentionBlock;
  const C none = -__builtin_inff();
  for (int64_t j = 0; j < begin; ++j) scores[j] = none;
  for (int64_t j = end; j < ceil_to(keys, kN); ++j) scores[j] = none;
  C now = w.maximum[r];
  for (int64_t j = begin; j < end; ++j) now = scores[j] > now ? scores[j] : now;
  const C base = finite_maximum(now), rescale = fast_exp2_small(w.maximum[r] - base);
  Vec<C> total{};
  for (int64_t j = 0; j < keys; j += kN) {
    const Vec<C> p = fast_exp2_small(load(scores + j) - base);
    total += p;
    store(scores + j, p);
  }
  w.total[r] = w.total[r] * rescale + sum(total);
  if (now != w.maximum[r])
    for (int64_t d = 0; d < padded; d += kN)
      store(w.out + r * padded + d, load(w.out + r * padded + d) * rescale);
  w.maximum[r] = now;
}

// Rows of one head are far apart: without prefetching, each would wait for memory.
template <class T>
TRIREME_INLINE void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t d = 0; d < width; d += kLine) __builtin_prefetch(from + i * stride + d);
}

template <class T>
void few_queries_forward(const AttentionForward<T>& a, const Sequence& s, int64_t kv_head,
                         compute_t<T>* scratch) {
  using C = compute_t<T>;
  const int64_t group = a.heads / a.kv_heads, rows = s.queries * group;
  // Whole vectors for every instruction set, so that rows_of may use the operands in place.
  const int64_t padded = ceil_to(a.width, kMaxFloatLanes), used = ceil_to(a.width, kLanes<C>);
  Work<C> w(scratch, padded);
  for (int64_t i = 0; i < s.queries; ++i)
    pack_rows(w.queries + i * group * used, used,
              a.q.data + (s.first_query + i) * a.q.row + kv_head * group * a.q.head, a.q.head,
              group, a.width, static_cast<C>(a.scale * kLog2E));
  for (int64_t x = 0; x < rows * used; ++x) w.out[x] = 0;
  const int64_t stop = keys_end(s, s.queries);
  for (int64_t j0 = keys_begin(s, 0) / kAttentionBlock * kAttentionBlock; j0 < stop;
       j0 += kAttentionBlock) {
    const int64_t keys = smaller(kAttentionBlock, stop - j0), first = s.first_key + j0;
    const int64_t next = smaller(kAttentionBlock, stop - j0 - keys);
    prefetch_rows(a.k.data + (first + keys) * a.k.row + kv_head * a.k.head, a.k.row, next, a.width);
    prefetch_rows(a.v.data + (first + keys) * a.v.row + kv_head * a.v.head, a.v.row, next, a.width);
    const Rows<C> k = rows_of(a.k.data + first * a.k.row + kv_head * a.k.head, a.k.row, keys,
                              a.width, w.keys, used, true);
    const Rows<C> v = rows_of(a.v.data + first * a.v.row + kv_head * a.v.head, a.v.row, keys,
                              a.width, w.values, used, true);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = r / group;
      const int64_t begin = clamped(keys_begin(s, i) - j0, 0, keys);
      const int64_t end = clamped(keys_end(s, i + 1) - j0, begin, keys);
      C* const scores = w.scores + r * kAttentionBlock;
      score_row(scores, w.queries + r * used, k, begin, end, used);
      // Whole vectors: softmax_row() hides the scores around them.
      for (int64_t j = begin / kLanes<C> * kLanes<C>; a.cap > 0 && j < end; j += kLanes<C>)
        store(scores + j, capped(load(scores + j), a.cap));
      softmax_row(w, r, begin, end, keys, used);
    }
    tile_product<true, C>(
        {w.out, used, w.scores, kAttentionBlock, 1, v.data, v.stride, rows, used, keys});
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = kv_head * group + r % group, t = s.first_query + r / group;
    const C factor = finish_softmax(w.maximum[r], w.total[r], a.lse + head * a.tokens + t);
    unpack_rows<false>(a.out.data + t * a.out.row + head * a.out.head, a.out.row, w.out + r * used,
                       used, 1, a.width, factor);
  }
}

// --- the items of work --------------------------------------------------------------------------

template <class T>
int64_t count_items(const AttentionForward<T>& a) {
  a.items[0] = 0;
  for (int64_t n = 0; n < a.sequences; ++n) {
    const Sequence s = sequence_of(a, n);
    const int64_t items = s.queries == 0 ? 0
                          : few_queries(a, s)
                              ? a.kv_heads
                              : a.heads * ((s.queries + kAttentionBlock - 1) / kAttentionBlock);
    a.items[n + 1] = a.items[n] + items;
  }
  return a.items[a.sequences];
}

template <class T>
void run_item(const AttentionForward<T>& a, int64_t item, compute_t<T>* scratch) {
  const int64_t n = find_item(a.items, a.sequences, item), local = item - a.items[n];
  const Sequence s = sequence_of(a, n);
  if (few_queries(a, s)) return few_queries_forward(a, s, local, scratch);
  // The last block of queries sees most keys: start with it, so that the threads finish together.
  const int64_t blocks = (s.queries + kAttentionBlock - 1) / kAttentionBlock;
  block_forward(a, s, local / blocks, blocks - 1 - local % blocks, scratch);
}

// Clears rows without any computation; before segments all rows, unless they add to earlier calls.
template <class T>
void clear_rows(const AttentionForward<T>& a, int threads) {
  if (a.by_segments && !a.clear) return;
  const int64_t used = a.by_segments ? 0 : a.cu_q[a.sequences];
  if (a.by_segments)
    zero_rows(a.out_sum, used, a.tokens, a.heads, a.width, threads);
  else
    zero_rows(a.out, used, a.tokens, a.heads, a.width);
  for (int64_t h = 0; h < a.heads; ++h)
    for (int64_t t = used; t < a.tokens; ++t) a.lse[h * a.tokens + t] = -__builtin_inff();
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward<T>& a, int threads) {
  clear_rows(a, threads);
  const int64_t items = count_items(a);
  // Each item writes its own rows: the thread makes no difference.
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (items > 1)
  for (int64_t item = 0; item < items; ++item)
    run_item(a, item, a.scratch + omp_get_thread_num() * a.scratch_per_thread);
}

template void attention_forward<double>(const AttentionForward<double>&, int);
template void attention_forward<float>(const AttentionForward<float>&, int);
template void attention_forward<bf16>(const AttentionForward<bf16>&, int);
template void attention_forward<f16>(const AttentionForward<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
