// Functions shared by GPU kernels: loads and stores of several elements at once, sums over a warp
// and a thread block. For CUDA sources only.
#pragma once

#include "engine/core/float16.h"
#include "engine/device/launch.h"

namespace trireme::cuda {

inline constexpr int kWarp = 32;

// N elements of T that one thread loads or stores with one instruction if their address allows it.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T v[N];
};
// Elements of T in 16 bytes, the widest load.
template <class T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

// Calls call.operator()<N>() with the number of elements that one thread may move at once: kPack<T>
// if `columns` is a multiple of it and all pointers are 16-byte aligned (or null: not used), else
// 1.
template <class T, class Call, class... P>
void with_pack(int64_t columns, Call&& call, const P*... pointers) {
  const bool aligned = ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
  if (aligned && columns % kPack<T> == 0)
    call.template operator()<kPack<T>>();
  else
    call.template operator()<1>();
}

// Number of thread blocks for a kernel whose threads stride through n elements: one per `per_block`
// elements, but not more than fill the device.
inline int64_t grid_blocks(const Context& gpu, int64_t n, int64_t per_block) {
  constexpr int64_t kBlocksAMultiprocessor = 8;
  const int64_t most = kBlocksAMultiprocessor * gpu.info.multiprocessors;
  const int64_t wanted = blocks_for(n, per_block);
  return wanted < most ? wanted : most;
}

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }

// Prefetches the cache line of p into L2.
__device__ inline void prefetch_l2([[maybe_unused]] const void* p) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

template <class T>
__device__ compute_t<T> to_compute(T x) {
  return static_cast<compute_t<T>>(x);
}

// Sum and maximum over each group of kLanes neighbouring lanes, returned to all of them. The sum is
// in butterfly order. All lanes of the warp must call them.
template <int kLanes = kWarp, class F>
__device__ F warp_sum(F x) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

template <int kLanes = kWarp, class F>
__device__ F warp_max(F x) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    const F other = __shfl_xor_sync(0xffffffffu, x, mask);
    x = other > x ? other : x;
  }
  return x;
}

// Sum over the thread block, in every thread; `shared` has room for 32 values and may be reused
// after the next __syncthreads. All threads must call it. The order of the sum depends only on the
// block's size, a multiple of 32.
template <class F>
__device__ F block_sum(F x, F* shared) {
  const int lane = lane_of_warp(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_sum(x);
  __syncthreads();  // until an earlier call's values have been read
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  F total = lane < warps ? shared[lane] : F{0};
  return warp_sum(total);
}

// Maximum over the thread block, with the same requirements.
template <class F>
__device__ F block_max(F x, F* shared) {
  const int lane = lane_of_warp(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_max(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_max(shared[lane < warps ? lane : 0]);
}

__device__ inline float inverse_root(float x) { return 1.0f / sqrtf(x); }
__device__ inline double inverse_root(double x) { return 1.0 / sqrt(x); }

// The block's dynamic shared memory, 16-byte aligned.
template <class T>
__device__ T* dynamic_shared() {
#ifdef TRIREME_EMULATED
  return static_cast<T*>(emulator::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char trireme_shared[];
  return reinterpret_cast<T*>(trireme_shared);
#endif
}

}  // namespace trireme::cuda
