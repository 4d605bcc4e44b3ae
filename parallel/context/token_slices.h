// Which tokens of a micro-batch each context-parallel rank holds, and who sees whom.
//
// A micro-batch is B rows (samples) of S tokens, flat. Each row is padded at its end to 2 N chunks
// of c tokens; a rank holds two chunks of every row, one behind the other, the earlier one first:
//     zigzag      chunks r and 2N - 1 - r: with a causal mask every rank has the same work
//     contiguous  chunks 2r and 2r + 1
// so a rank has B * 2c local tokens. What lies beyond S is padding: it belongs to no document, so
// nothing sees it and it sees nothing.
//
// Ranks that exchange heads (Ulysses) are u neighbours; together they hold two runs of u chunks,
// which are the chunks of one rank of a layout with N / u ranks: grouped(u).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/ops/attention.h"
#include "parallel/context/options.h"

namespace trireme {

struct ContextLayout {
  int64_t rows = 0;    // B
  int64_t length = 0;  // S, without padding
  int ranks = 1;       // N
  int64_t chunk = 0;   // c
  ContextBalance balance = ContextBalance::kZigzag;

  int64_t padded_length() const { return 2 * ranks * chunk; }
  int64_t local_length() const { return 2 * chunk; }  // tokens of one row on one rank
  int64_t local_tokens() const { return rows * local_length(); }
  std::array<int64_t, 2> chunks(int rank) const;  // ascending
  ContextLayout grouped(int ranks_together) const;
  bool operator==(const ContextLayout&) const = default;
};

// The shortest chunks of a multiple of `multiple` tokens (the tensor-parallel ranks, where they
// share the tokens of a rank) that hold rows of `length` tokens.
ContextLayout make_context_layout(int64_t rows, int64_t length, int ranks, int64_t multiple,
                                  ContextBalance balance);

// For each local token of a rank its number b * S + s in the micro-batch, or -1 for padding.
std::vector<int64_t> tokens_of_rank(const ContextLayout& layout, int rank);

// Where the rows of grouped(u)'s rank `group` come from: entry i is the place of its local token i
// among the local tokens of its u members, one member behind the other.
std::vector<int32_t> order_of_group(const ContextLayout& layout, int ranks_together, int group);

// Documents are given by cu_seqlens, their offsets in the micro-batch without padding, from 0 to B
// * S; none reaches into the next row.

// Position of each local token in its document; 0 for padding.
void key_positions(const ContextLayout& layout, int rank, std::span<const int32_t> cu_seqlens,
                   std::span<int32_t> positions);

// The pairs of a local query of `query_rank` and a local key of `key_rank` of which the query may
// see the key: same document, key not later. One segment per document at most: between two ranks a
// document's queries that see anything see the same keys, and both lie in one piece.
void segments_between(const ContextLayout& layout, int query_rank, int key_rank,
                      std::span<const int32_t> cu_seqlens, std::vector<AttentionSegment>& segments);

// The same pairs in segments whose diagonal says how far apart a query and a key are in their
// document, so that a window over it can be applied. A document in both chunks of a zigzag rank has
// a gap between them:
// its pairs are in two parts, chunks with those of their own number, and the later chunk of queries
// with the earlier one of keys; the segments of a part are as segments_between() gives them.
int window_parts(const ContextLayout& layout);
void window_segments_between(const ContextLayout& layout, int query_rank, int key_rank, int part,
                             std::span<const int32_t> cu_seqlens,
                             std::vector<AttentionSegment>& segments);

}  // namespace trireme
