// Tokens of a pass: packed sequences, one after the other. T tokens.
#pragma once

#include <span>

#include "parallel/context/context_plan.h"

namespace trireme {

// Positions of a pass's tokens in a KV cache, for S sequences
// (engine/ops/attention/paged_attention.h), in the layers of one group
// (transformer/pass/kv_groups.h). Between replays of a recorded pass only the contents of the
// tensors may change.
struct CachedTokens {
  // (T) int64: slot of each token, block number * block_tokens + place in the block; negative: not
  // stored.
  ConstTensor slots;
  ConstTensor block_table;  // (S, M) int32: block numbers of each sequence, at most M, in order
  // (S) int32: tokens of each sequence, including those of this pass, counted from the first block
  // in the table: a group with a window holds only the last blocks.
  ConstTensor context_lens;
  int64_t max_queries = 1;      // maximum of one sequence's tokens in this pass
  int64_t max_context_len = 0;  // as in PagedAttentionArgs
  // No sequence has earlier tokens: attention reads k and v of the pass, as in training, unless the
  // cache holds 8-bit codes.
  bool new_sequences = false;
};

// Replacements of the fields of Tokens of the same names for layers whose attention stays inside
// chunks of a document (ModelConfig::attention_chunk): each chunk is a sequence of its own.
struct ChunkTokens {
  ConstTensor cu_q;
  int64_t uniform_length = 0, max_seqlen = 0;
  CachedTokens cached;  // if the first group of layers has chunks
};

struct Tokens {
  int64_t count = 0;      // T
  ConstTensor ids;        // (T) int32
  ConstTensor targets;    // (T) int32; kIgnoredTarget: no loss; absent in inference
  ConstTensor positions;  // (T) int32: position in the document
  // Exclusive upper bound of all positions; the model must have reserved it
  // (Model::reserve_positions()).
  int64_t position_end = 0;
  // (T) int64: global token index, the key of dropout; -1: padding. May be absent in inference.
  ConstTensor global_index;
  // Tokens per sample, whose first global index is a multiple of it; 0: unknown. Experts may be
  // balanced per sample.
  int64_t sequence_length = 0;
  ConstTensor cu_q;     // (N + 1) int32: offsets of the sequences
  CachedTokens cached;  // with a KV cache: positions in its first group of layers
  // Positions in the other groups; in those with chunks, each chunk is a sequence.
  std::span<const CachedTokens> cached_others;
  // (T, 2) int32: range of inner (rank) columns of each token's adapter, in a model with stacked
  // adapters (transformer/formats/peft/stacked_adapters.h). Absent: all columns.
  ConstTensor adapter_columns;
  // Common length of all sequences in cu_q, if they have one and there is no padding; 0: unknown.
  // Enables a fast path of attention on a GPU, which the host could not choose without reading the
  // offsets back.
  int64_t uniform_length = 0;
  // Upper bound of the sequence lengths; 0: unknown.
  int64_t max_seqlen = 0;
  ChunkTokens chunks;  // in a model with chunked layers
  // Sequences split over context-parallel ranks, instead of cu_q; nullptr: no context parallelism.
  const ContextPlan* context = nullptr;

  const CachedTokens& cached_in(int64_t group) const {
    return group == 0 ? cached : cached_others[static_cast<size_t>(group - 1)];
  }
};

// Returns the tokens with each chunk as a sequence, for layers whose attention stays inside chunks.
inline Tokens in_chunks(const Tokens& tokens) {
  Tokens out = tokens;
  const ChunkTokens& chunks = tokens.chunks;
  out.cu_q = chunks.cu_q;
  out.uniform_length = chunks.uniform_length;
  out.max_seqlen = chunks.max_seqlen;
  out.cached = chunks.cached;
  if (tokens.context != nullptr) out.context = &tokens.context->chunked();
  return out;
}

}  // namespace trireme
