// Scratch and sizes of a counting sort (counting_order.cuda.h), for the ops that allocate scratch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::cuda {

struct CountingScratch {
  int32_t* counts;             // (buckets, chunks) scratch
  int64_t* totals;             // (buckets): items of each bucket, an output
  int64_t n, buckets, chunks;  // n: items; chunks: order_chunks(n)
};
// Number of chunks for n items: a function of n only.
inline int64_t order_chunks(int64_t n) {
  constexpr int64_t kItemsWorthAChunk = 256, kMaxChunks = 1024;
  return std::clamp<int64_t>(n / kItemsWorthAChunk, 1, kMaxChunks);
}
inline constexpr int64_t kDigitBuckets = 256;  // radix sort: maximum number of buckets of one digit

}  // namespace trireme::cuda
