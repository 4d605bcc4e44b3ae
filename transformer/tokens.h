// The tokens a stage works on, flat: several sequences one behind the other, (T) of each field.
#pragma once

#include "parallel/context/context_plan.h"

namespace trireme {

// Where the tokens of a pass stand in a KV cache. Which fields count says the cache.
struct CachedTokens {
  // ContiguousKvCache: tokens of the sequence before these.
  int64_t past = 0;
  // PagedKvCache, for S sequences (engine/ops/paged_attention.h). All of it may change between two runs
  // of a recorded pass.
  ConstTensor slots;         // (T) int64: where each token goes; negative: nowhere
  ConstTensor block_table;   // (S, M) int32
  ConstTensor context_lens;  // (S) int32: tokens of each sequence, these included
  // These. With new_sequences no sequence has tokens before them, and most_queries is not read: any
  // number of them is then one pass as in training.
  int64_t most_queries = 1;  // of a sequence
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
  ConstTensor cu_q;     // (N + 1) int32: offsets of the sequences among the queries
  ConstTensor cu_k;     // (N + 1) int32: offsets among the keys; cu_q unless there is a KV cache
  CachedTokens cached;  // with a KV cache
  // Length of the sequences that cu_q and cu_k give where all have one and there is no padding: attention
  // over such has a fast way on a GPU, which cannot see the offsets from the host. 0: not known.
  int64_t uniform_length = 0;
  // No sequence is longer, and cu_k is cu_q; 0: not known.
  int64_t longest = 0;
  // Where sequences are spread over context-parallel ranks, in the place of cu_q and cu_k.
  const ContextPlan* context = nullptr;
};

}  // namespace trireme
