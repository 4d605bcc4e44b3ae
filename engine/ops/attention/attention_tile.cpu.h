// Parts shared by the CPU's attention kernels: packing of blocks, visibility of keys to a block of
// queries, and dropout of the probabilities. Strides are in elements.
#pragma once

#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/tile_product.cpu.h"
#include "engine/ops/backend/philox.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

TRIREME_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
TRIREME_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
TRIREME_INLINE int64_t clamped(int64_t x, int64_t low, int64_t high) {
  return smaller(larger(x, low), high);
}
TRIREME_INLINE int64_t ceil_to(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// --- blocks in and out --------------------------------------------------------------------------

// to[d * kAttentionBlock + i] = factor * from[i * stride + d] for i < rows and d < width; zero for
// i from `rows` to a whole vector.
template <class T, class C>
void pack_transposed(C* to, const T* from, int64_t stride, int64_t rows, int64_t width, C factor) {
  constexpr int kN = kLanes<C>;
  for (int64_t i = 0; i < rows; i += kN)
    for (int64_t d = 0; d < width; d += kN) {
      Vec<C> square[kN];
      const int64_t used = smaller(kN, width - d);
      for (int r = 0; r < kN; ++r) {
        const T* p = from + (i + r) * stride + d;
        if (i + r >= rows)
          square[r] = Vec<C>{};
        else
          square[r] = (used == kN ? load(p) : load_partial(p, used)) * factor;
      }
      transpose<Vec<C>>(square);
      for (int r = 0; r < used; ++r) store(to + (d + r) * kAttentionBlock + i, square[r]);
    }
}

// to[i * stride + d] = factor[i] * from[d * kAttentionBlock + i] for i < rows and d < width; +=
// with kAdd.
template <bool kAdd, class T, class C>
void unpack_transposed(T* to, int64_t stride, const C* from, int64_t rows, int64_t width,
                       const C* factor) {
  constexpr int kN = kLanes<C>;
  for (int64_t i = 0; i < rows; i += kN)
    for (int64_t d = 0; d < width; d += kN) {
      Vec<C> square[kN];
      const int64_t used = smaller(kN, width - d);
      for (int r = 0; r < kN; ++r)
        square[r] =
            r < used ? load(from + (d + r) * kAttentionBlock + i) * load(factor + i) : Vec<C>{};
      transpose<Vec<C>>(square);
      for (int r = 0; r < kN && i + r < rows; ++r) {
        T* p = to + (i + r) * stride + d;
        if (used == kN)
          store(p, kAdd ? load(p) + square[r] : square[r]);
        else
          store_partial(p, used, kAdd ? load_partial(p, used) + square[r] : square[r]);
      }
    }
}

// to (rows, padded) = factor * from; columns from `width` to a whole vector are zero.
template <class T, class C>
void pack_rows(C* to, int64_t padded, const T* from, int64_t stride, int64_t rows, int64_t width,
               C factor) {
  constexpr int kN = kLanes<C>;
  for (int64_t i = 0; i < rows; ++i) {
    const T* p = from + i * stride;
    int64_t d = 0;
    for (; d + kN <= width; d += kN) store(to + i * padded + d, load(p + d) * factor);
    if (d < width) store(to + i * padded + d, load_partial(p + d, width - d) * factor);
  }
}

// to[i * stride + d] = factor * from[i * padded + d] for i < rows and d < width; += with kAdd.
template <bool kAdd, class T, class C>
void unpack_rows(T* to, int64_t stride, const C* from, int64_t padded, int64_t rows, int64_t width,
                 C factor) {
  constexpr int kN = kLanes<C>;
  for (int64_t i = 0; i < rows; ++i) {
    T* p = to + i * stride;
    int64_t d = 0;
    for (; d + kN <= width; d += kN) {
      const Vec<C> x = load(from + i * padded + d) * factor;
      store(p + d, kAdd ? load(p + d) + x : x);
    }
    if (d == width) continue;
    const Vec<C> x = load(from + i * padded + d) * factor;
    store_partial(p + d, width - d, kAdd ? load_partial(p + d, width - d) + x : x);
  }
}

// Rows in the compute type: row i starts at data + i * stride.
template <class C>
struct Rows {
  const C* data;
  int64_t stride;
};

// Rows of an operand in the compute type: the operand itself if it has that type (and, with
// whole_vectors, a width of whole vectors), else a copy in `buffer` with rows of `padded` elements.
template <class T, class C>
TRIREME_INLINE Rows<C> rows_of(const T* from, int64_t stride, int64_t rows, int64_t width,
                               C* buffer, int64_t padded, bool whole_vectors) {
  if constexpr (std::is_same_v<T, C>)
    if (!whole_vectors || width % kLanes<C> == 0) return {from, stride};
  pack_rows(buffer, padded, from, stride, rows, width, C(1));
  return {buffer, padded};
}

// Sets rows [begin, end) of all heads to zero.
template <class T>
void zero_rows(const HeadView<T>& view, int64_t begin, int64_t end, int64_t heads, int64_t width,
               int threads = 1) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < width; ++d) view.data[t * view.row + h * view.head + d] = T{};
}

// --- visibility of keys --------------------------------------------------------------------------

// One sequence or segment: query i sees the keys j with i + offset - window < j <= i + offset. i
// and j count from its first query and its first key.
struct Sequence {
  int64_t first_query, queries, first_key, keys;  // rows of q and of k, and their numbers
  int64_t offset, window;  // without a limit: so large that every key is seen
};

template <class T>
TRIREME_INLINE Sequence sequence_of(const Attention<T>& a, int64_t n) {
  constexpr int64_t kUnlimited = int64_t{1} << 40;
  Sequence s;
  s.window = a.window > 0 ? a.window : 2 * kUnlimited;
  if (a.by_segments) {
    const int32_t* segment = a.segments + n * 5;
    s.first_query = segment[0];
    s.queries = segment[1] - segment[0];
    s.first_key = segment[2];
    s.keys = segment[3] - segment[2];
    s.offset = segment[4];
    return s;
  }
  s.first_query = a.cu_q[n];
  s.queries = a.cu_q[n + 1] - a.cu_q[n];
  s.first_key = a.cu_k[n];
  s.keys = a.cu_k[n + 1] - a.cu_k[n];
  s.offset = a.causal ? s.keys - s.queries : kUnlimited;
  return s;
}

// Ranges of the keys that at least one of the queries [i0, i1) sees, and of the queries that see
// one of the keys [j0, j1). Empty if the end is not above the beginning.
TRIREME_INLINE int64_t keys_begin(const Sequence& s, int64_t i0) {
  return larger(0, i0 + s.offset - s.window + 1);
}
TRIREME_INLINE int64_t keys_end(const Sequence& s, int64_t i1) {
  return smaller(s.keys, i1 + s.offset);
}
TRIREME_INLINE int64_t queries_begin(const Sequence& s, int64_t j0) {
  return larger(0, j0 - s.offset);
}
TRIREME_INLINE int64_t queries_end(const Sequence& s, int64_t j1) {
  return smaller(s.queries, j1 - 1 - s.offset + s.window);
}

// A rectangle of a transposed block, rows (keys) by columns (queries). Columns are whole vectors.
struct Rectangle {
  int64_t row0, row1, column0, column1;
};
// Visible part of the block of keys from j0 on and queries from i0 on, split in two ways: into flat
// rectangles for work along the queries, and into tall ones for sums over the keys.
struct Spans {
  // rows, columns: numbers of keys and queries in the block. The last vector of a rectangle may
  // reach past the queries.
  int64_t j0, i0, rows, columns;
  int flat_count = 0, tall_count = 0;
  Rectangle flat[kAttentionBlock / kMaxFloatLanes];
  bool
      masked[kAttentionBlock / kMaxFloatLanes];  // some elements of the flat rectangle are not seen
  Rectangle tall[kAttentionBlock / 2];  // one per vector at most; the narrowest has 2 lanes
};

// Fills spans.tall from spans.flat: neighbouring columns with the same rows form one rectangle.
// width: columns of the block in whole vectors of `lanes`.
TRIREME_INLINE void find_tall_spans(Spans& spans, int64_t width, int64_t lanes) {
  for (int64_t column = 0; column < width; column += lanes) {
    int64_t row0 = kAttentionBlock, row1 = 0;  // the rows that a column needs are contiguous
    for (int n = 0; n < spans.flat_count; ++n) {
      const Rectangle& flat = spans.flat[n];
      if (column < flat.column0 || column >= flat.column1) continue;
      row0 = smaller(row0, flat.row0);
      row1 = larger(row1, flat.row1);
    }
    if (row0 >= row1) continue;
    Rectangle* last = spans.tall_count > 0 ? &spans.tall[spans.tall_count - 1] : nullptr;
    if (last != nullptr && last->column1 == column && last->row0 == row0 && last->row1 == row1)
      last->column1 = column + lanes;
    else
      spans.tall[spans.tall_count++] = {row0, row1, column, column + lanes};
  }
}

// Splits the block into strips of kMaxFloatLanes keys, drops the columns that a strip does not need
// and joins equal neighbours: whole blocks stay whole, those on the diagonal become a staircase.
template <class C>
Spans spans_of(const Sequence& s, int64_t i0, int64_t j0) {
  constexpr int64_t kN = kLanes<C>;
  Spans out;
  out.j0 = j0;
  out.i0 = i0;
  out.rows = smaller(kAttentionBlock, s.keys - j0);
  out.columns = smaller(kAttentionBlock, s.queries - i0);
  const int64_t width = ceil_to(out.columns, kN);
  for (int64_t row = 0; row < out.rows; row += kMaxFloatLanes) {
    const int64_t end = smaller(row + kMaxFloatLanes, out.rows);
    // Columns seen by the first key of the strip from `low` on, by the last one before `high`.
    const int64_t low = j0 + row - s.offset - i0, high = j0 + end - 1 - s.offset + s.window - i0;
    const int64_t column0 = clamped(low, 0, width) / kN * kN;
    const int64_t column1 = ceil_to(clamped(high, 0, width), kN);
    if (column0 >= column1) continue;
    const bool masked =
        low + (end - 1 - row) > column0 || high - (end - 1 - row) < smaller(column1, out.columns);
    const int before = out.flat_count - 1;
    if (before >= 0 && out.flat[before].row1 == row && out.flat[before].column0 == column0 &&
        out.flat[before].column1 == column1 && out.masked[before] == masked) {
      out.flat[before].row1 = end;
    } else {
      out.masked[out.flat_count] = masked;
      out.flat[out.flat_count++] = {row, end, column0, column1};
    }
  }
  find_tall_spans(out, width, kN);
  return out;
}

// Applies the soft cap to the scores.
template <class C>
void cap_scores(C* scores, const Spans& spans, C cap) {
  for (int n = 0; n < spans.flat_count; ++n) {
    const Rectangle& span = spans.flat[n];
    for (int64_t row = span.row0; row < span.row1; ++row)
      for (int64_t column = span.column0; column < span.column1; column += kLanes<C>) {
        C* p = scores + row * kAttentionBlock + column;
        store(p, capped(load(p), cap));
      }
  }
}

// Sets the scores of invisible keys to -infinity.
template <class C>
void mask_scores(C* scores, const Sequence& s, const Spans& spans) {
  constexpr int kN = kLanes<C>;
  const Vec<C> hidden = splat<Vec<C>>(-__builtin_inff());
  for (int n = 0; n < spans.flat_count; ++n) {
    if (!spans.masked[n]) continue;
    const Rectangle& span = spans.flat[n];
    for (int64_t row = span.row0; row < span.row1; ++row) {
      const int64_t low = spans.j0 + row - s.offset - spans.i0;
      const int64_t high = low + s.window;
      const auto first = static_cast<C>(clamped(low, 0, kAttentionBlock));
      const auto end = static_cast<C>(clamped(high, 0, kAttentionBlock));
      for (int64_t column = span.column0; column < span.column1; column += kN) {
        if (column >= low && column + kN <= high) continue;
        C* p = scores + row * kAttentionBlock + column;
        const Vec<C> at = iota<Vec<C>>() + static_cast<C>(column);
        store(p, ((at >= first) & (at < end)) ? load(p) : hidden);
      }
    }
  }
}

// Sequence n of work item number `item`: offsets[n] <= item < offsets[n + 1].
TRIREME_INLINE int64_t find_item(const int64_t* offsets, int64_t sequences, int64_t item) {
  int64_t low = 0, high = sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (offsets[middle] <= item ? low : high) = middle;
  }
  return low;
}

// --- dropout ------------------------------------------------------------------------------------

// counters[i] = number of the Philox block of key 0 for query i0 + i: four keys share a block of
// four words. Past the last query it is that of the last one.
template <class T>
TRIREME_INLINE void dropout_counters(uint64_t (&counters)[kAttentionBlock], const Attention<T>& a,
                                     const Sequence& s, int64_t head, int64_t i0) {
  for (int64_t i = 0; i < kAttentionBlock; ++i) {
    const int64_t query = smaller(i0 + i, s.queries - 1);
    const auto row = static_cast<uint64_t>(a.global_index[s.first_query + query]);
    const auto number = static_cast<uint64_t>(a.first_head + head);
    counters[i] = (row * static_cast<uint64_t>(a.total_heads) + number) << 22;
  }
}

// words[w][lane] = word w of Philox block counters[lane] + group (engine/core/random.h).
template <int kCount>
TRIREME_INLINE void philox_words(uint32_t (&words)[4][kCount], const uint64_t* counters,
                                 uint64_t group, const RandomKey& key) {
  typedef uint32_t Half __attribute__((vector_size(kVectorBytes / 2)));
  const PhiloxLanes multiplier0 = PhiloxLanes{} + 0xD2511F53u;
  const PhiloxLanes multiplier1 = PhiloxLanes{} + 0xCD9E8D57u;
  for (int lane = 0; lane < kCount; lane += kPhiloxLanes) {
    PhiloxLanes c0, c2 = PhiloxLanes{} + key.stream, c3 = c2 >> 32;
    __builtin_memcpy(&c0, counters + lane, sizeof c0);
    c0 += group;
    PhiloxLanes c1 = c0 >> 32;
    auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const PhiloxLanes p0 = multiply_low_halves(c0, multiplier0);
      const PhiloxLanes p1 = multiply_low_halves(c2, multiplier1);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const PhiloxLanes wide[4] = {c0, c1, c2, c3};
    for (int w = 0; w < 4; ++w) {
      const Half narrow = __builtin_convertvector(wide[w], Half);
      __builtin_memcpy(&words[w][lane], &narrow, sizeof narrow);
    }
  }
}

// `keep` in the lanes whose word keeps the probability (its upper 24 bits are at least
// `threshold`), else 0.
template <class C, int kN>
TRIREME_INLINE Vec<C> dropout_factor(const uint32_t (&words)[kN], uint32_t threshold, C keep) {
  using Int = typename Traits<Vec<C>>::Int;
  Int word;
  for (int i = 0; i < kN; ++i) word[i] = static_cast<decltype(+word[0])>(words[i] >> 8);
  return word >= static_cast<decltype(+word[0])>(threshold) ? splat<Vec<C>>(keep) : Vec<C>{};
}

// for_each_dropout() for one span of keys with listed positions (AttentionSegments::key_position):
// neighbours mostly share a Philox block. positions[row]: that of the block's key `row`.
template <class T, class F>
TRIREME_INLINE void dropout_of_listed_keys(const Attention<T>& a,
                                           const uint64_t (&counters)[kAttentionBlock],
                                           const Rectangle& span, const int32_t* positions, F&& f) {
  constexpr int kN = kLanes<compute_t<T>>;
  for (int64_t column = span.column0; column < span.column1; column += kN) {
    uint32_t words[4][kN];
    int32_t group = -1;
    for (int64_t row = span.row0; row < span.row1; ++row) {
      const int32_t position = positions[row];
      if (position / 4 != group) {
        group = position / 4;
        philox_words(words, counters + column, static_cast<uint64_t>(group), a.key);
      }
      f(row * kAttentionBlock + column,
        dropout_factor(words[position % 4], a.drop_threshold, a.keep_scale));
    }
  }
}

// Calls f(offset, factor) for every vector of scores in the spans: `offset` is the position of the
// vector in the block, `factor` is a.keep_scale in the lanes whose probability is kept, else 0. May
// include up to three rows after a span, but none past the block.
template <class T, class F>
TRIREME_INLINE void for_each_dropout(const Attention<T>& a, const Sequence& s,
                                     const uint64_t (&counters)[kAttentionBlock],
                                     const Spans& spans, F&& f) {
  constexpr int kN = kLanes<compute_t<T>>;
  for (int n = 0; n < spans.flat_count; ++n) {
    const Rectangle& span = spans.flat[n];
    if (a.key_position != nullptr) {
      dropout_of_listed_keys(a, counters, span, a.key_position + s.first_key + spans.j0, f);
      continue;
    }
    for (int64_t row = span.row0; row < span.row1; row += 4)
      for (int64_t column = span.column0; column < span.column1; column += kN) {
        uint32_t words[4][kN];
        philox_words(words, counters + column, static_cast<uint64_t>(spans.j0 + row) / 4, a.key);
        for (int w = 0; w < 4; ++w)
          f((row + w) * kAttentionBlock + column,
            dropout_factor(words[w], a.drop_threshold, a.keep_scale));
      }
  }
}

}  // namespace trireme::cpu::TRIREME_ISA
