// GPU kernels of order_by_expert() and drop_over_capacity() (engine/ops/moe/expert_rows.h). A pair
// with an invalid expert is not dispatched, and does not count towards the capacity.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/rows/counting_scratch.cuda.h"

namespace trireme::cuda {

struct OrderByExpert {
  int32_t *pairs, *places;  // (T k)
  const int32_t* experts;   // (T k)
  CountingScratch order;    // items: the pairs; buckets: the experts; totals: the op's counts
};
TRIREME_CUDA_DECL void order_by_expert(Context& gpu, const OrderByExpert& a);

struct DropOverCapacity {
  int32_t* experts;            // (own, k)
  int64_t* dropped;            // (1)
  const int32_t* all_experts;  // (tokens, k)
  const int64_t* all_rows;     // (tokens)
  int64_t *sorted, *other;     // (tokens) scratch: tokens sorted by global token index
  // own: this rank's tokens, at [first, first + own) of `tokens`
  int64_t own, tokens, k, first, num_experts, capacity;
  int32_t* counts;  // (max(num_experts, kDigitBuckets), order_chunks(tokens * k)) scratch
  int64_t* totals;  // (max(num_experts, kDigitBuckets)) scratch
};
TRIREME_CUDA_DECL void drop_over_capacity(Context& gpu, const DropOverCapacity& a);

}  // namespace trireme::cuda
