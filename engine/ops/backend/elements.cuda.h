// Elementwise kernels over a range of independent items. An item is usually a 16-byte pack of
// elements, if addresses allow it. For CUDA sources only.
#pragma once

#include <algorithm>

#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {

inline constexpr int kItemThreads = 256;

// Work: a structure of pointers and sizes with __device__ void operator()(int64_t item) const.
template <class Work>
__global__ void __launch_bounds__(kItemThreads) items_kernel(Work work, int64_t items) {
  begin_kernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kItemThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kItemThreads + threadIdx.x; i < items;
       i += step)
    work(i);
}

// Calls work(i) for i in [0, items) on the main stream, in any order.
template <class Work>
void for_each_item(Context& gpu, const char* op, int64_t items, const Work& work) {
  // Four times the thread blocks that are resident at once, so that the last ones finish together.
  constexpr int64_t kBlocksAMultiprocessor = 32;
  const int64_t blocks =
      std::min(blocks_for(items, kItemThreads), kBlocksAMultiprocessor * gpu.info.multiprocessors);
  launch(gpu, op, items_kernel<Work>, {.blocks = {blocks}, .threads = kItemThreads}, work, items);
}

// a / b for a, b >= 0, in 32 bits if they fit: a 64-bit division takes as long as moving the item.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

// Pack number `item`, N elements, of the array at p, whose address must be aligned for packs.
template <class T, int N>
__device__ Pack<T, N> load_pack(const T* p, int64_t item) {
  return reinterpret_cast<const Pack<T, N>*>(p)[item];
}
template <class T, int N>
__device__ void store_pack(T* p, int64_t item, const Pack<T, N>& value) {
  reinterpret_cast<Pack<T, N>*>(p)[item] = value;
}

}  // namespace trireme::cuda
