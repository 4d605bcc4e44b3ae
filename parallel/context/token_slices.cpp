#include "parallel/context/token_slices.h"

#include <algorithm>

namespace trireme {
namespace {

// Document within its row.
struct Document {
  int64_t row, begin, end;
};

template <class F>
void for_each_document(const ContextLayout& layout, std::span<const int32_t> cu_seqlens, F&& f) {
  for (size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
    const int64_t begin = cu_seqlens[n], end = cu_seqlens[n + 1];
    if (begin == end) continue;
    const int64_t row = begin / layout.length, start = row * layout.length;
    TRIREME_CHECK(begin >= 0 && begin < end && end <= start + layout.length && row < layout.rows,
                  "document ", n, " of tokens ", begin, " to ", end, " is not within one of ",
                  layout.rows, " rows of ", layout.length);
    f(Document{row, begin - start, end - start});
  }
}

// Local tokens [begin, end) of a rank.
struct LocalRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
};

// A document's tokens in the rank's chunks number [first, last) of two. They are contiguous,
// because a document in both chunks spans from the end of one to the start of the other.
LocalRange held_by(const ContextLayout& layout, int rank, const Document& document, size_t first,
                   size_t last) {
  LocalRange out;
  for (size_t j = first; j < last; ++j) {
    const int64_t start = layout.chunks(rank)[j] * layout.chunk;
    const int64_t begin = std::max(document.begin, start);
    const int64_t end = std::min(document.end, start + layout.chunk);
    if (begin >= end) continue;
    const int64_t local =
        document.row * layout.local_length() + static_cast<int64_t>(j) * layout.chunk - start;
    if (out.empty()) out.begin = local + begin;
    out.end = local + end;
  }
  return out;
}

void add_segment(const LocalRange& queries, const LocalRange& keys, int32_t diagonal,
                 std::vector<AttentionSegment>& segments) {
  if (queries.empty() || keys.empty()) return;
  segments.push_back({narrow<int32_t>(queries.begin), narrow<int32_t>(queries.end),
                      narrow<int32_t>(keys.begin), narrow<int32_t>(keys.end), diagonal});
}

// Index in its row of a local token of the rank.
int64_t place_in_row(const ContextLayout& layout, int rank, int64_t local) {
  const int64_t at = local % layout.local_length();
  return layout.chunks(rank)[static_cast<size_t>(at / layout.chunk)] * layout.chunk +
         at % layout.chunk;
}

}  // namespace

std::array<int64_t, 2> ContextLayout::chunks(int rank) const {
  TRIREME_CHECK(rank >= 0 && rank < ranks, "context rank ", rank, " is not one of ", ranks);
  if (balance == ContextBalance::kContiguous) return {2 * rank, 2 * rank + 1};
  return {rank, 2 * ranks - 1 - rank};
}

ContextLayout ContextLayout::grouped(int ranks_together) const {
  TRIREME_CHECK(ranks_together > 0 && ranks % ranks_together == 0, ranks,
                " context ranks cannot be divided into groups of ", ranks_together);
  ContextLayout out = *this;
  out.ranks = ranks / ranks_together;
  out.chunk = chunk * ranks_together;
  return out;
}

ContextLayout make_context_layout(int64_t rows, int64_t length, int ranks, int64_t multiple,
                                  ContextBalance balance) {
  TRIREME_CHECK(rows > 0 && length > 0 && ranks > 0 && multiple > 0, rows, " rows of ", length,
                " tokens over ", ranks, " context ranks in multiples of ", multiple,
                ", expected at least 1 of each");
  const int64_t chunk = round_up(ceil_div(length, 2 * ranks), multiple);
  const ContextLayout layout{rows, length, ranks, chunk, balance};
  narrow<int32_t>(checked_mul(rows, layout.padded_length()));  // offsets are int32
  return layout;
}

std::vector<int64_t> tokens_of_rank(const ContextLayout& layout, int rank) {
  std::vector<int64_t> tokens;
  tokens.reserve(static_cast<size_t>(layout.local_tokens()));
  for (int64_t row = 0; row < layout.rows; ++row)
    for (const int64_t chunk : layout.chunks(rank))
      for (int64_t i = 0; i < layout.chunk; ++i) {
        const int64_t at = chunk * layout.chunk + i;
        tokens.push_back(at < layout.length ? row * layout.length + at : -1);
      }
  return tokens;
}

std::vector<int32_t> order_of_group(const ContextLayout& layout, int ranks_together, int group) {
  const ContextLayout whole = layout.grouped(ranks_together);
  std::vector<int32_t> order(static_cast<size_t>(whole.local_tokens()));
  const std::array<int64_t, 2> runs = whole.chunks(group);
  int64_t from = 0;
  for (int member = 0; member < ranks_together; ++member)
    for (int64_t row = 0; row < layout.rows; ++row)
      for (const int64_t chunk : layout.chunks(group * ranks_together + member)) {
        const int64_t run = chunk / ranks_together == runs[0] ? 0 : 1;
        TRIREME_CHECK(chunk / ranks_together == runs[static_cast<size_t>(run)], "chunk ", chunk,
                      " is outside group ", group);
        const int64_t to =
            row * whole.local_length() + run * whole.chunk + chunk % ranks_together * layout.chunk;
        for (int64_t i = 0; i < layout.chunk; ++i)
          order[static_cast<size_t>(to + i)] = narrow<int32_t>(from++);
      }
  return order;
}

void key_positions(const ContextLayout& layout, int rank, std::span<const int32_t> cu_seqlens,
                   std::span<int32_t> positions) {
  TRIREME_CHECK(std::ssize(positions) == layout.local_tokens(), positions.size(),
                " positions, expected one for each of ", layout.local_tokens(), " local tokens");
  std::ranges::fill(positions, 0);
  for_each_document(layout, cu_seqlens, [&](const Document& document) {
    for (size_t j = 0; j < 2; ++j) {
      const LocalRange held = held_by(layout, rank, document, j, j + 1);
      const int64_t local =
          document.row * layout.local_length() + static_cast<int64_t>(j) * layout.chunk;
      const int64_t shift = layout.chunks(rank)[j] * layout.chunk - local - document.begin;
      for (int64_t t = held.begin; t < held.end; ++t)
        positions[static_cast<size_t>(t)] = static_cast<int32_t>(t + shift);
    }
  });
}

std::vector<int32_t> chunk_offsets(std::span<const int32_t> cu_seqlens, int64_t chunk) {
  TRIREME_CHECK(chunk > 0, "chunks of ", chunk, " tokens, expected at least 1");
  std::vector<int32_t> out;
  out.reserve(cu_seqlens.size());
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    for (int64_t at = cu_seqlens[i]; at < cu_seqlens[i + 1]; at += chunk)
      out.push_back(static_cast<int32_t>(at));
  out.push_back(cu_seqlens.empty() ? 0 : cu_seqlens.back());
  return out;
}

void segments_between(const ContextLayout& layout, int query_rank, int key_rank,
                      std::span<const int32_t> cu_seqlens,
                      std::vector<AttentionSegment>& segments) {
  segments.clear();
  if (query_rank == key_rank) {
    // A document's tokens are in order, with gaps, so causal in local order is causal in the
    // document.
    for_each_document(layout, cu_seqlens, [&](const Document& document) {
      const LocalRange held = held_by(layout, query_rank, document, 0, 2);
      add_segment(held, held, 0, segments);
    });
    return;
  }
  const std::array<int64_t, 2> queries = layout.chunks(query_rank), keys = layout.chunks(key_rank);
  const auto earlier = [&](int64_t chunk) {
    return static_cast<size_t>(std::ranges::count_if(keys, [&](int64_t k) { return k < chunk; }));
  };
  // Number of the two key chunks that each of the two query chunks sees as a whole.
  const size_t first_sees = earlier(queries[0]), second_sees = earlier(queries[1]);
  TRIREME_CHECK(first_sees == 0 || first_sees == second_sees, "context ranks ", query_rank, " and ",
                key_rank, " see each other in more than one piece");
  for_each_document(layout, cu_seqlens, [&](const Document& document) {
    add_segment(held_by(layout, query_rank, document, first_sees > 0 ? 0 : 1, 2),
                held_by(layout, key_rank, document, 0, second_sees), kWholeSegment, segments);
  });
}

int window_parts(const ContextLayout& layout) {
  return layout.balance == ContextBalance::kContiguous ? 1 : 2;
}

void window_segments_between(const ContextLayout& layout, int query_rank, int key_rank, int part,
                             std::span<const int32_t> cu_seqlens,
                             std::vector<AttentionSegment>& segments) {
  segments.clear();
  const auto add = [&](const LocalRange& queries, const LocalRange& keys) {
    if (queries.empty() || keys.empty()) return;
    const int64_t apart = place_in_row(layout, query_rank, queries.begin) -
                          place_in_row(layout, key_rank, keys.begin);
    add_segment(queries, keys, narrow<int32_t>(apart), segments);
  };
  if (layout.balance == ContextBalance::kContiguous) {
    TRIREME_CHECK(part == 0, "part ", part, " of contiguous chunks, which have only part 0");
    if (key_rank > query_rank) return;
    return for_each_document(layout, cu_seqlens, [&](const Document& document) {
      add(held_by(layout, query_rank, document, 0, 2), held_by(layout, key_rank, document, 0, 2));
    });
  }
  const std::array<int64_t, 2> queries = layout.chunks(query_rank), keys = layout.chunks(key_rank);
  for_each_document(layout, cu_seqlens, [&](const Document& document) {
    const auto add_chunks = [&](size_t query, size_t key) {
      if (keys[key] <= queries[query])
        add(held_by(layout, query_rank, document, query, query + 1),
            held_by(layout, key_rank, document, key, key + 1));
    };
    if (part == 0)
      for (const size_t chunk : {size_t{0}, size_t{1}}) add_chunks(chunk, chunk);
    else
      add_chunks(1, 0);
  });
}

}  // namespace trireme
