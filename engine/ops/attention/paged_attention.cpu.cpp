// One work item is a tile of rows, the queries of the heads that share a key/value head (row =
// query * group + head in the group), against all keys that they see, kPagedKeys at a time, with an
// online softmax.
//
// A row's numbers are computed in the same order for any other rows in the tile, any number of
// queries in a step and any number of threads: steps of keys start at multiples of kPagedKeys, a
// score is one sum over D by lanes and then over the lanes as a tree, a softmax adds its
// exponentials by key % lanes, and a value is added key by key. Hence a prompt in chunks has the
// bits of a whole one.
#include <omp.h>

#include "engine/ops/attention/paged_attention.kernels.h"
#include "engine/ops/attention/paged_rows.cpu.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr double kLog2E = 1.44269504088896340736;

// Scratch of one thread; rows have `padded` elements, whole vectors.
template <class C>
struct Work {
  C *queries, *out, *keys, *values, *scores, *maximum, *total;
  int64_t padded;

  Work(void* scratch, int64_t width) : padded(ceil_to(width, kLanes<C>)) {
    queries = static_cast<C*>(scratch);
    out = queries + kPagedRows * padded;
    keys = out + kPagedRows * padded;
    values = keys + kPagedKeys * padded;
    scores = values + kPagedKeys * padded;
    maximum = scores + kPagedRows * kPagedKeys;
    total = maximum + kPagedRows;
  }
};

// Rows [row0, row0 + rows) of a sequence's key/value head.
struct Tile {
  int64_t sequence, kv_head, group, row0, rows;
  int64_t first_query, past;  // number of keys before the first query
  int64_t window;

  int64_t end[kPagedRows];  // end of the keys that each row sees

  int64_t query(int64_t row) const { return (row0 + row) / group; }
  int64_t head(int64_t row) const { return kv_head * group + (row0 + row) % group; }
  int64_t begin(int64_t row) const { return window > 0 ? larger(0, end[row] - window) : 0; }
};

// Keys of a step, as rows of C and their scales.
template <class C>
struct Keys {
  const C *k[kPagedKeys], *v[kPagedKeys];
  alignas(64) C k_scale[kPagedKeys], v_scale[kPagedKeys];
  bool scaled;
};

// Addresses of keys [from, to) of the sequence: rows of the pool if their type is used directly in
// the computation, else widened into the work space. Entries outside the range are set to the next
// one inside, and their results are not used.
template <class T, class C>
TRIREME_INLINE void find_keys(Keys<C>& keys, Work<C>& w, const PagedAttention<T>& a,
                              const PagedPools& pools, const Tile& t, int64_t j0, int64_t from,
                              int64_t to) {
  keys.scaled = pools.k.scale != nullptr;
  const int32_t* block = a.table + t.sequence * a.max_blocks + (j0 + from) / a.block_size;
  int64_t at = (j0 + from) % a.block_size;
  for_pool_type<C>(pools.type, [&]<class P>() {
    for (int64_t j = from; j < to; ++j, ++at) {
      if (at == a.block_size) ++block, at = 0;
      const int64_t row = (*block * a.kv_heads + t.kv_head) * a.block_size + at;
      const P* k = static_cast<const P*>(pools.k.rows) + row * a.width;
      const P* v = static_cast<const P*>(pools.v.rows) + row * a.width;
      if (keys.scaled) {
        keys.k_scale[j] = static_cast<C>(pools.k.scale[row]);
        keys.v_scale[j] = static_cast<C>(pools.v.scale[row]);
      }
      if constexpr (std::is_same_v<P, C>) {
        if (w.padded == a.width) {
          keys.k[j] = k;
          keys.v[j] = v;
          continue;
        }
      }
      widen_row(w.keys + j * w.padded, k, a.width);
      widen_row(w.values + j * w.padded, v, a.width);
      keys.k[j] = w.keys + j * w.padded;
      keys.v[j] = w.values + j * w.padded;
    }
  });
  for (int64_t j = 0; j < kPagedKeys; ++j) {
    if (j >= from && j < to) continue;
    keys.k[j] = keys.k[from];
    keys.k_scale[j] = keys.v_scale[j] = 0;
  }
}

// Lane i of the result: the sum of v[i]'s lanes, in the tree order of sum().
template <class V, int kStep = kLanes<typename Traits<V>::Scalar> / 2>
TRIREME_INLINE V sums(V (&v)[kLanes<typename Traits<V>::Scalar>]) {
#pragma GCC unroll 16
  for (int i = 0; i < kStep; ++i) {
    exchange_blocks<kStep>(v[i], v[i + kStep], LaneNumbers<V>{});
    v[i] += v[i + kStep];
  }
  if constexpr (kStep > 1)
    return sums<V, kStep / 2>(v);
  else
    return v[0];
}

// scores[r * kPagedKeys + j] for kRows queries and as many keys as fill a vector with kRows of
// them.
template <int kRows, class C>
TRIREME_INLINE void score(C* scores, const C* const* queries, const C* const* keys,
                          int64_t padded) {
  constexpr int kN = kLanes<C>, kKeys = kN / kRows;
  Vec<C> total[kN] = {};
  for (int64_t d = 0; d < padded; d += kN) {
    Vec<C> query[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) query[r] = load(queries[r] + d);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const Vec<C> key = load(keys[j] + d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) total[r * kKeys + j] += query[r] * key;
    }
  }
  const Vec<C> all = sums(total);
  C lanes[kN];
  store(lanes, all);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
    __builtin_memcpy(scores + r * kPagedKeys, lanes + r * kKeys, kKeys * sizeof(C));
}

// Scores of all rows and at least the first `count` keys.
template <class C>
void score_rows(Work<C>& w, const Keys<C>& keys, int64_t rows, int64_t count) {
  constexpr int kRows = kLanes<C> >= 4 ? kLanes<C> / 4 : 1;
  const int64_t padded = w.padded;
  int64_t r = 0;
  if constexpr (kRows > 1)
    for (; r + kRows <= rows; r += kRows) {
      const C* queries[kRows];
      for (int i = 0; i < kRows; ++i) queries[i] = w.queries + (r + i) * padded;
      for (int64_t j = 0; j < count; j += kLanes<C> / kRows)
        score<kRows>(w.scores + r * kPagedKeys + j, queries, keys.k + j, padded);
    }
  for (; r < rows; ++r) {
    const C* const query = w.queries + r * padded;
    for (int64_t j = 0; j < count; j += kLanes<C>)
      score<1>(w.scores + r * kPagedKeys + j, &query, keys.k + j, padded);
  }
}

// Replaces a row's scores by the weights of the values of the keys [begin, end) of this step;
// rescales the row's running sums.
template <class C>
TRIREME_INLINE void softmax_row(Work<C>& w, const Keys<C>& keys, int64_t r, int64_t begin,
                                int64_t end, C cap) {
  constexpr int kN = kLanes<C>;
  constexpr C kNone = -__builtin_inff();
  C* const scores = w.scores + r * kPagedKeys;
  if (keys.scaled)
    for (int64_t j = 0; j < kPagedKeys; j += kN)
      store(scores + j, load(scores + j) * load(keys.k_scale + j));
  if (cap > 0)
    for (int64_t j = 0; j < kPagedKeys; j += kN) store(scores + j, capped(load(scores + j), cap));
  for (int64_t j = 0; j < begin; ++j) scores[j] = kNone;
  for (int64_t j = end; j < kPagedKeys; ++j) scores[j] = kNone;
  Vec<C> most = splat<Vec<C>>(w.maximum[r]);
  for (int64_t j = 0; j < kPagedKeys; j += kN) {
    const Vec<C> s = load(scores + j);
    most = s > most ? s : most;
  }
  C now = most[0];
  for (int i = 1; i < kN; ++i) now = most[i] > now ? most[i] : now;
  // Zero if no key was seen: exp2(-infinity - base) is 0.
  const C base = now == kNone ? C(0) : now;
  const C rescale = fast_exp2_small(splat<Vec<C>>(w.maximum[r] - base))[0];
  Vec<C> total{};
  for (int64_t j = 0; j < kPagedKeys; j += kN) {
    const Vec<C> p = fast_exp2_small(load(scores + j) - base);
    total += p;
    store(scores + j, keys.scaled ? p * load(keys.v_scale + j) : p);
  }
  w.total[r] = w.total[r] * rescale + sum(total);
  w.maximum[r] = now;
  if (rescale == 1) return;
  C* const out = w.out + r * w.padded;
  for (int64_t d = 0; d < w.padded; d += kN) store(out + d, load(out + d) * rescale);
}

// out += weights * values of the keys [begin, end), for kRows rows and kVectors vectors from d on.
template <int kRows, int kVectors, class C>
TRIREME_INLINE void add_values(Work<C>& w, const Keys<C>& keys, int64_t r, int64_t d, int64_t begin,
                               int64_t end) {
  constexpr int kN = kLanes<C>;
  C* const out = w.out + r * w.padded + d;
  const C* const weights = w.scores + r * kPagedKeys;
  Vec<C> here[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u) here[i][u] = load(out + i * w.padded + u * kN);
  for (int64_t j = begin; j < end; ++j) {
    Vec<C> value[kVectors];
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u) value[u] = load(keys.v[j] + d + u * kN);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const C x = weights[i * kPagedKeys + j];
#pragma GCC unroll 4
      for (int u = 0; u < kVectors; ++u) here[i][u] += x * value[u];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u) store(out + i * w.padded + u * kN, here[i][u]);
}

template <int kRows, int kVectors, class C>
TRIREME_INLINE void add_row_values(Work<C>& w, const Keys<C>& keys, int64_t r, int64_t begin,
                                   int64_t end) {
  constexpr int kN = kLanes<C>;
  int64_t d = 0;
  for (; d + kVectors * kN <= w.padded; d += kVectors * kN)
    add_values<kRows, kVectors>(w, keys, r, d, begin, end);
  for (; d < w.padded; d += kN) add_values<kRows, 1>(w, keys, r, d, begin, end);
}

// Keys j0 to j0 + kPagedKeys for all rows of the tile that see any of them.
template <class T, class C>
void attend_step(const PagedAttention<T>& a, const PagedPools& pools, const Tile& t, Work<C>& w,
                 int64_t j0) {
  const auto begin_of = [&](int64_t r) { return clamped(t.begin(r) - j0, 0, kPagedKeys); };
  const auto end_of = [&](int64_t r) { return clamped(t.end[r] - j0, 0, kPagedKeys); };
  const int64_t from = begin_of(0), to = end_of(t.rows - 1);
  Keys<C> keys;
  find_keys(keys, w, a, pools, t, j0, from, to);
  score_rows(w, keys, t.rows, to);
  for (int64_t r = 0; r < t.rows;) {
    const int64_t begin = begin_of(r), end = end_of(r);
    int64_t same = r;
    for (; same < t.rows && begin_of(same) == begin && end_of(same) == end; ++same)
      if (begin < end) softmax_row(w, keys, same, begin, end, a.cap);
    if (begin < end) {
      for (; r + 4 <= same; r += 4) add_row_values<4, 2>(w, keys, r, begin, end);
      for (; r < same; ++r) add_row_values<1, 4>(w, keys, r, begin, end);
    }
    r = same;
  }
}

template <class T>
void attend(const PagedAttention<T>& a, const PagedPools& pools, const Tile& t, int thread) {
  using C = compute_t<T>;
  Work<C> w(
      static_cast<C*>(pools.scratch) + thread * paged_scratch(ceil_to(a.width, kMaxFloatLanes)),
      a.width);
  const C factor = static_cast<C>(static_cast<double>(a.scale) * kLog2E);
  for (int64_t r = 0; r < t.rows; ++r) {
    const T* q = a.q.data + (t.first_query + t.query(r)) * a.q.row + t.head(r) * a.q.head;
    pack_rows(w.queries + r * w.padded, w.padded, q, a.width, 1, a.width, factor);
    // A sink is a key before all others, with a value of 0.
    const bool sink = a.sinks != nullptr;
    w.maximum[r] =
        sink ? static_cast<C>(static_cast<double>(static_cast<C>(a.sinks[t.head(r)])) * kLog2E)
             : -__builtin_inff();
    w.total[r] = sink ? 1 : 0;
  }
  for (int64_t x = 0; x < t.rows * w.padded; ++x) w.out[x] = 0;
  const int64_t end = t.end[t.rows - 1];
  for (int64_t j0 = t.begin(0) / kPagedKeys * kPagedKeys; j0 < end; j0 += kPagedKeys)
    attend_step(a, pools, t, w, j0);
  for (int64_t r = 0; r < t.rows; ++r) {
    T* out = a.out.data + (t.first_query + t.query(r)) * a.out.row + t.head(r) * a.out.head;
    const C total = w.total[r];
    unpack_rows<false>(out, a.width, w.out + r * w.padded, w.padded, 1, a.width,
                       total == 0 ? C(0) : C(1) / total);
  }
}

// --- the items of work --------------------------------------------------------------------------

TRIREME_INLINE int64_t tiles_of(int64_t rows, int64_t tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

template <class T>
int64_t count_items(const PagedAttention<T>& a, int64_t* items, int64_t tile_rows) {
  const int64_t group = a.heads / a.kv_heads;
  items[0] = 0;
  for (int64_t n = 0; n < a.sequences; ++n)
    items[n + 1] = items[n] + a.kv_heads * tiles_of((a.cu_q[n + 1] - a.cu_q[n]) * group, tile_rows);
  return items[a.sequences];
}

// Rows of a tile: fewer rows occupy more threads; with more rows keys are read less often.
template <class T>
int64_t choose_tile_rows(const PagedAttention<T>& a, int64_t* items, int threads) {
  int64_t tile_rows = kPagedRows;
  while (tile_rows > 16 && count_items(a, items, tile_rows) < 4 * threads) tile_rows /= 2;
  while (tile_rows > 1 && count_items(a, items, tile_rows) < threads) tile_rows /= 2;
  return tile_rows;
}

template <class T>
Tile tile_of(const PagedAttention<T>& a, const int64_t* items, int64_t tile_rows, int64_t item) {
  Tile t;
  t.sequence = find_item(items, a.sequences, item);
  t.group = a.heads / a.kv_heads;
  t.first_query = a.cu_q[t.sequence];
  const int64_t queries = a.cu_q[t.sequence + 1] - t.first_query, rows = queries * t.group;
  const int64_t tiles = tiles_of(rows, tile_rows), local = item - items[t.sequence];
  // The last rows see most keys: start with them, so that the threads finish together.
  t.row0 = (tiles - 1 - local % tiles) * tile_rows;
  t.rows = smaller(tile_rows, rows - t.row0);
  t.kv_head = local / tiles;
  t.past = a.lengths[t.sequence] - queries;
  t.window = a.window;
  for (int64_t r = 0; r < t.rows; ++r) t.end[r] = t.past + t.query(r) + 1;
  return t;
}

}  // namespace

template <class T>
void paged_attention(const PagedAttention<T>& a, const PagedPools& pools, int threads) {
  const int64_t tile_rows = choose_tile_rows(a, pools.items, threads);
  const int64_t items = count_items(a, pools.items, tile_rows);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (items > 1)
  for (int64_t item = 0; item < items; ++item)
    attend(a, pools, tile_of(a, pools.items, tile_rows, item), omp_get_thread_num());
  zero_rows(a.out, a.cu_q[a.sequences], a.tokens, a.heads, a.width);
}

template void paged_attention<double>(const PagedAttention<double>&, const PagedPools&, int);
template void paged_attention<float>(const PagedAttention<float>&, const PagedPools&, int);
template void paged_attention<bf16>(const PagedAttention<bf16>&, const PagedPools&, int);
template void paged_attention<f16>(const PagedAttention<f16>&, const PagedPools&, int);

}  // namespace trireme::cpu::TRIREME_ISA
