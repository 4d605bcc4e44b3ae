// Stable counting sort: computes the place of each of n items, its index in the order (bucket,
// item). An item without a bucket has no place. The items are split into chunks, one per warp.
// Three kernels compute the number of items of each chunk in each bucket, the running sums of these
// numbers over the chunks, and the places. For CUDA sources only.
//
//   keys(i)              bucket of item i in [0, buckets), or -1: none; called more than once
//   sink(i, place)       called once per item; place -1 if the item has no bucket
#pragma once

#include "engine/ops/rows/column_sums.cuda.h"
#include "engine/ops/rows/counting_scratch.cuda.h"

namespace trireme::cuda {

// Sets counts (buckets, chunks) to the number of items of each chunk in each bucket.
template <class Keys>
__global__ void __launch_bounds__(kWarp) count_kernel(Keys keys, CountingScratch o) {
  begin_kernel();
  auto* const count = dynamic_shared<int64_t>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t b = lane; b < o.buckets; b += kWarp) count[b] = 0;
  __syncwarp();
  const int64_t end = first_row(blockIdx.x + 1, o.chunks, o.n);
  for (int64_t i = first_row(blockIdx.x, o.chunks, o.n) + lane; i < end; i += kWarp) {
    const int32_t key = keys(i);
    if (key >= 0) atomicAdd(reinterpret_cast<unsigned long long*>(count + key), 1ull);
  }
  __syncwarp();
  for (int64_t b = lane; b < o.buckets; b += kWarp)
    o.counts[b * o.chunks + blockIdx.x] = static_cast<int32_t>(count[b]);
}

// Sum of x over the lanes before this one; sets `all` to the sum over all lanes.
template <class I>
__device__ I sum_before(I x, I& all) {
  const int lane = lane_of_warp();
  I sum = x;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const I other = __shfl_up_sync(0xffffffffu, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += other;
  }
  all = __shfl_sync(0xffffffffu, sum, kWarp - 1);
  return sum - x;
}

// One warp per bucket: replaces the count of each chunk by the number of the bucket's items in
// earlier chunks, and sets the bucket's total.
static __global__ void __launch_bounds__(kWarp) running_counts_kernel(CountingScratch o) {
  begin_kernel();
  int32_t* const counts = o.counts + blockIdx.x * o.chunks;
  int32_t before = 0;
  for (int64_t at = 0; at < o.chunks; at += kWarp) {
    const int64_t c = at + threadIdx.x;
    int32_t all = 0;
    const int32_t sum = sum_before(c < o.chunks ? counts[c] : 0, all);
    if (c < o.chunks) counts[c] = before + sum;
    before += all;
  }
  if (threadIdx.x == 0) o.totals[blockIdx.x] = before;
}

// Passes each item and its place to the sink. kInBucket: the place is relative to the first item of
// the bucket.
template <bool kInBucket, class Keys, class Sink>
__global__ void __launch_bounds__(kWarp) place_kernel(Keys keys, Sink sink, CountingScratch o) {
  begin_kernel();
  auto* const next = dynamic_shared<int64_t>();
  const int lane = static_cast<int>(threadIdx.x);
  int64_t before = 0;
  for (int64_t at = 0; at < o.buckets; at += kWarp) {
    const int64_t b = at + lane;
    int64_t start = 0;
    if constexpr (!kInBucket) {
      int64_t all = 0;
      start = before + sum_before(b < o.buckets ? o.totals[b] : int64_t{0}, all);
      before += all;
    }
    if (b < o.buckets) next[b] = start + o.counts[b * o.chunks + blockIdx.x];
  }
  __syncwarp();
  const int64_t end = first_row(blockIdx.x + 1, o.chunks, o.n);
  for (int64_t at = first_row(blockIdx.x, o.chunks, o.n); at < end; at += kWarp) {
    const int64_t i = at + lane;
    const int32_t key = i < end ? keys(i) : -1;
    unsigned same = 0;  // lanes with this key
    for (int l = 0; l < kWarp; ++l)
      if (__shfl_sync(0xffffffffu, key, l) == key) same |= 1u << l;
    const int earlier = __popc(same & ((1u << lane) - 1));
    const int64_t place = key < 0 ? -1 : next[key] + earlier;
    __syncwarp();
    if (key >= 0 && earlier == 0) next[key] += __popc(same);
    __syncwarp();
    if (i < end) sink(i, place);
  }
}

// Runs the three kernels. kInBucket: as in place_kernel; op: name of the launches.
template <bool kInBucket, class Keys, class Sink>
void place_in_order(Context& gpu, const char* op, const Keys& keys, const Sink& sink,
                    const CountingScratch& o) {
  const Grid chunks{.blocks = {o.chunks},
                    .threads = kWarp,
                    .shared = o.buckets * static_cast<int64_t>(sizeof(int64_t))};
  launch(gpu, op, count_kernel<Keys>, chunks, keys, o);
  launch(gpu, op, running_counts_kernel, {.blocks = {o.buckets}, .threads = kWarp}, o);
  launch(gpu, op, place_kernel<kInBucket, Keys, Sink>, chunks, keys, sink, o);
}

}  // namespace trireme::cuda
