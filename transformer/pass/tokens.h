// Tokens of a pass, flat: several sequences one after the other; each field has T entries.
#pragma once

#include <span>

#include "parallel/context/context_plan.h"

namespace trireme {

// Positions of a pass's tokens in a KV cache, for S sequences
// (engine/ops/attention/paged_attention.h), in the layers of one group
// (transformer/pass/kv_groups.h). Only the contents of the tensors may change between two replays
// of a recorded pass.
struct CachedTokens {
  ConstTensor slots;        // (T) int64: slot of each token; negative: not stored
  ConstTensor block_table;  // (S, M) int32
  // (S) int32: tokens of each sequence, those of this pass included, from the first one in the
  // table on: a group with a window holds only the last blocks.
  ConstTensor context_lens;
  // Tokens of this pass. With new_sequences no sequence has earlier tokens and max_queries is not
  // read: any number of tokens per sequence is then one pass as in training.
  int64_t max_queries = 1;      // of one sequence
  int64_t longest_context = 0;  // PagedAttentionArgs
  bool new_sequences = false;
};

// The fields of the same name of Tokens and CachedTokens for layers whose attention stays inside
// chunks of a document (ModelConfig::attention_chunk): each chunk is a sequence there.
struct ChunkTokens {
  ConstTensor cu_q;
  int64_t uniform_length = 0, longest = 0;
  CachedTokens cached;  // in the first group of layers
};

struct Tokens {
  int64_t count = 0;      // T
  ConstTensor ids;        // (T) int32
  ConstTensor targets;    // (T) int32, kIgnoredTarget where there is no loss; absent in inference
  ConstTensor positions;  // (T) int32: position inside the document
  // Exclusive upper bound of all positions; the model must have reserved it
  // (Model::reserve_positions()).
  int64_t position_end = 0;
  ConstTensor rows;  // (T) int64: global index of the token, the key of its dropout
  // Tokens per sample, whose first global index is a multiple of it; 0: unknown. Experts may be
  // balanced per sample.
  int64_t sequence_length = 0;
  ConstTensor cu_q;                             // (N + 1) int32: offsets of the sequences
  CachedTokens cached;                          // with a KV cache: in its first group of layers
  std::span<const CachedTokens> cached_others;  // in the others; where they have chunks, of these
  // (T, 2) int32: range of the inner columns that applies to each token, in a model with stacked
  // adapters (transformer/formats/peft/stacked_adapters.h). Absent: all columns.
  ConstTensor adapter_columns;
  // Length of the sequences in cu_q where all have the same one and there is no padding. Enables a
  // fast path of attention on a GPU, which the host could not choose without reading the offsets
  // back. 0: unknown.
  int64_t uniform_length = 0;
  // Upper bound of the sequence lengths; 0: unknown.
  int64_t longest = 0;
  ChunkTokens chunks;  // in a model with such layers
  // Sequences over context-parallel ranks, instead of cu_q; nullptr: no context parallelism.
  const ContextPlan* context = nullptr;

  const CachedTokens& cached_in(int64_t group) const {
    return group == 0 ? cached : cached_others[static_cast<size_t>(group - 1)];
  }
};

// The tokens as layers see them whose attention stays inside chunks.
inline Tokens in_chunks(const Tokens& tokens) {
  Tokens out = tokens;
  const ChunkTokens& chunks = tokens.chunks;
  out.cu_q = chunks.cu_q;
  out.uniform_length = chunks.uniform_length;
  out.longest = chunks.longest;
  out.cached = chunks.cached;
  if (tokens.context != nullptr) out.context = &tokens.context->chunked();
  return out;
}

}  // namespace trireme
