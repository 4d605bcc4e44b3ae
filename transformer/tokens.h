// The tokens a stage works on, flat: several sequences one behind the other, (T) of each field.
#pragma once

#include "parallel/context/context_plan.h"

namespace trireme {

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
  ConstTensor cu_q;  // (N + 1) int32: offsets of the sequences among the queries
  ConstTensor cu_k;  // (N + 1) int32: offsets among the keys; cu_q unless there is a KV cache
  // Length of the sequences that cu_q and cu_k give where all have one and there is no padding: attention
  // over such has a fast way on a GPU, which cannot see the offsets from the host. 0: not known.
  int64_t uniform_length = 0;
  // Where sequences are spread over context-parallel ranks, in the place of cu_q and cu_k.
  const ContextPlan* context = nullptr;
};

}  // namespace trireme
