// Assignment of a micro-batch's tokens to context-parallel ranks, and visibility between them.
//
// A micro-batch is B rows (samples) of S tokens, flat. Each row is padded at its end to 2 N chunks
// of c tokens. Rank r of N holds two chunks of every row, the earlier one first:
//     zigzag      chunks r and 2N - 1 - r: with a causal mask every rank has the same work
//     contiguous  chunks 2r and 2r + 1
// so a rank has B * 2c local tokens. Tokens beyond S are padding: they belong to no document, so no
// query sees them and they see no key.
//
// Ranks that exchange heads (Ulysses) are u neighbours. Together they hold two runs of u chunks,
// which are the chunks of one rank in a layout with N / u ranks: grouped(u).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/ops/attention/attention.h"
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

// Layout with the shortest chunks that hold rows of `length` tokens. The chunk length is a multiple
// of `multiple` (the tensor-parallel ranks, if they share the tokens of a rank).
ContextLayout make_context_layout(int64_t rows, int64_t length, int ranks, int64_t multiple,
                                  ContextBalance balance);

// Index b * S + s in the micro-batch of each local token of a rank, or -1 for padding.
std::vector<int64_t> tokens_of_rank(const ContextLayout& layout, int rank);

// Permutation from the order in which a Ulysses group receives tokens to row order. Entry i, for
// local token i of rank `group` in grouped(u), is the index of that token in the concatenated local
// tokens of the u members.
std::vector<int32_t> order_of_group(const ContextLayout& layout, int ranks_together, int group);

// Documents are given by cu_seqlens: their offsets in the unpadded micro-batch, from 0 to B * S. No
// document spans two rows.

// Position of each local token in its document; 0 for padding.
void key_positions(const ContextLayout& layout, int rank, std::span<const int32_t> cu_seqlens,
                   std::span<int32_t> positions);

// Offsets of the documents cut into chunks: at every multiple of `chunk` tokens from the beginning
// of each document. For attention that stays inside such chunks (Llama 4).
std::vector<int32_t> chunk_offsets(std::span<const int32_t> cu_seqlens, int64_t chunk);

// Pairs of a local query of `query_rank` and a local key of `key_rank` that the query may see (same
// document, key not later), as segments. At most one segment per document. Between two different
// ranks, the queries of a document that see any keys all see the same keys, and both are
// contiguous. On one rank, the segment has the document's local tokens as queries and as keys, with
// a causal mask.
void segments_between(const ContextLayout& layout, int query_rank, int key_rank,
                      std::span<const int32_t> cu_seqlens, std::vector<AttentionSegment>& segments);

// The same pairs, in segments whose diagonal is the distance between query and key in their
// document, so that a window can be applied. A document in both chunks of a zigzag rank has a gap
// between the two chunks, so its pairs form two parts: each query chunk with the key chunk of the
// same number, and the later query chunk with the earlier key chunk. Contiguous chunks need one
// part. window_parts(): number of parts.
int window_parts(const ContextLayout& layout);
void window_segments_between(const ContextLayout& layout, int query_rank, int key_rank, int part,
                             std::span<const int32_t> cu_seqlens,
                             std::vector<AttentionSegment>& segments);

}  // namespace trireme
