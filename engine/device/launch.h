// Launch of a kernel, the only way to run one. For CUDA sources only: files in cuda/ folders
// and the .cu, .cuda.cpp and .cuda.h files of engine/ops.
//
//   launch(gpu, "norm_forward", norm_forward_kernel<T>, {.blocks = {rows}, .threads = 256}, a...);
//
// Checks the grid against the device's limits (CheckFailed), launches nothing for an empty grid,
// allows dynamic shared memory above 48 KiB, and checks for launch errors (Error). The name marks
// the launch for profilers (NVTX). The kernel must begin with begin_kernel(), since the previous
// kernel may still be running. Under the emulator (TRIREME_EMULATED) the same call queues the
// kernel's body there.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/device/context.h"

namespace trireme::cuda {

struct Grid {
  struct CudaBlocks {  // no array: elements not given would be 0
    int64_t x = 1, y = 1, z = 1;
  };
  CudaBlocks blocks = {};
  int threads = 256;         // per block: a multiple of 32, at most 1024
  int64_t shared = 0;        // bytes of dynamic shared memory per block
  Stream* stream = nullptr;  // null: the main stream
};

// Throws Error naming the op, the runtime's call and its error.
[[noreturn]] void fail_runtime(int error, const char* op, const char* call);
inline void check_runtime(cudaError_t error, const char* op, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    fail_runtime(static_cast<int>(error), op, call);
}

// Parts of a launch that do not depend on the kernel's type.
struct PreparedLaunch {
  dim3 grid, block;
  cudaStream_t stream;
  bool empty;
  bool overlaps;  // with the previous kernel's end: blocks start while that kernel drains
};
PreparedLaunch prepare_launch(Context& gpu, const char* op, const Grid& grid, const void* kernel);
void finish_launch(Context& gpu, const char* op, const PreparedLaunch& prepared);

template <class... P, class... A>
void launch(Context& gpu, const char* op, void (*kernel)(P...), const Grid& grid,
            const A&... args) {
  const PreparedLaunch prepared =
      prepare_launch(gpu, op, grid, reinterpret_cast<const void*>(kernel));
  if (prepared.empty) return;
#ifdef TRIREME_EMULATED
  emulator::launch(
      prepared.stream, op, prepared.grid, prepared.block, static_cast<size_t>(grid.shared),
      [kernel, ... values = static_cast<P>(args)] { kernel(values...); },
      emulator::Arguments::of(reinterpret_cast<const void*>(kernel), static_cast<P>(args)...));
#else
  cudaLaunchConfig_t config{};
  config.gridDim = prepared.grid;
  config.blockDim = prepared.block;
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared);
  config.stream = prepared.stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = prepared.overlaps ? 1 : 0;
  check_runtime(cudaLaunchKernelEx(&config, kernel, P(args)...), op, "cudaLaunchKernelEx");
#endif
  finish_launch(gpu, op, prepared);
}

// First statement of every kernel. It allows blocks of the next kernel to start, and waits until
// the writes of earlier kernels are visible (programmatic dependent launch, CUDA Programming
// Guide). before(): work to run while earlier kernels may still write, such as a prefetch into the
// L2 cache; it must use no values from memory. Code for compute capabilities below 9.0 does none of
// this and does not call before().
template <class Before>
__device__ void begin_kernel([[maybe_unused]] const Before& before) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  before();
  cudaGridDependencySynchronize();
#endif
}
__device__ inline void begin_kernel() {
  begin_kernel([] {});
}

// Blocks for n items, rounded up; 0 if n is 0.
inline int64_t blocks_for(int64_t n, int64_t per_block) { return (n + per_block - 1) / per_block; }

}  // namespace trireme::cuda
