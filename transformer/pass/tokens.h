// The tokens a stage works on, flat: several sequences one behind the other, (T) of each field.
#pragma once

#include "parallel/context/context_plan.h"

namespace trireme {

// Where the tokens of a pass stand in a KV cache, for S sequences (engine/ops/paged_attention.h).
// All of it may change between two runs of a recorded pass.
struct CachedTokens {
  ConstTensor slots;         // (T) int64: where each token goes; negative: nowhere
  ConstTensor block_table;   // (S, M) int32
  ConstTensor context_lens;  // (S) int32: tokens of each sequence, these included
  // These. With new_sequences no sequence has tokens before them, and most_queries is not read: any
  // number of them is then one pass as in training.
  int64_t most_queries = 1;     // of a sequence
  int64_t longest_context = 0;  // PagedAttentionArgs
  bool new_sequences = false;
};

struct Tokens {
  int64_t count = 0;      // T
  ConstTensor ids;        // (T) int32
  ConstTensor targets;    // (T) int32, kIgnoredTarget where there is no loss; absent in inference
  ConstTensor positions;  // (T) int32: position inside the document
  // Every position is below it: what the model must have reserved (Model::reserve_positions()).
  int64_t position_end = 0;
  ConstTensor rows;  // (T) int64: global index of the token, keys dropout
  // Tokens of a sample, whose first global index is a multiple of it; 0: not known. The balancing
  // loss of experts may be one for each sample.
  int64_t sequence_length = 0;
  ConstTensor cu_q;     // (N + 1) int32: offsets of the sequences
  CachedTokens cached;  // with a KV cache
  // Where the model holds several adapters side by side
  // (transformer/formats/peft/stacked_adapters.h): (T, 2) int32, of the adapters' inner columns
  // those that act on the token. Absent: all.
  ConstTensor adapter_columns;
  // Length of the sequences that cu_q gives where all have one and there is no padding: attention
  // over such has a fast way on a GPU, which cannot see the offsets from the host. 0: not known.
  int64_t uniform_length = 0;
  // No sequence is longer; 0: not known.
  int64_t longest = 0;
  // Where sequences are spread over context-parallel ranks, in the place of cu_q.
  const ContextPlan* context = nullptr;
};

}  // namespace trireme
