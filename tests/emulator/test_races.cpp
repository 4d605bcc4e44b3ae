// ThreadSanitizer reports a kernel whose threads are not ordered by barriers, and does not report
// one whose threads are.
#include "tests/emulator/test_support.h"

#if TRIREME_EMULATOR_TSAN
// Death tests wait for the first report.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:exitcode=66"; }
#endif

namespace emulator::test {
namespace {

constexpr int kN = 96;

// Each thread reads the value that another thread wrote to static shared memory.
template <bool kBarrier>
__global__ void neighbours_static(float* out) {
  __shared__ float tile[kN];
  tile[threadIdx.x] = 1;
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = tile[(threadIdx.x + 1) % kN];
  if (kBarrier) __syncthreads();  // the next block writes the same memory
}

template <bool kBarrier>
__global__ void neighbours_dynamic(float* out) {
  auto* tile = static_cast<float*>(dynamic_shared());
  tile[threadIdx.x] = 1;
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = tile[(threadIdx.x + 1) % kN];
}

// Lanes of one warp: a shuffle exchanges registers and does not order memory.
template <bool kSyncWarp>
__global__ void neighbours_in_warp(float* out) {
  auto* tile = static_cast<float*>(dynamic_shared());
  tile[threadIdx.x] = 1;
  if (kSyncWarp)
    __syncwarp();
  else
    __shfl_xor_sync(0xffffffffu, 1, 1);
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

// The second round overwrites what a slower thread may still read.
template <bool kSecondBarrier>
__global__ void reuse(float* out) {
  auto* tile = static_cast<float*>(dynamic_shared());
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    tile[threadIdx.x] = static_cast<float>(round);
    __syncthreads();
    sum += tile[(threadIdx.x + 40) % kN];
    if (kSecondBarrier) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

class Races : public EmulatorTest {
 protected:
  static void run(void (*kernel)(float*), unsigned blocks = 1) {
    DeviceArray<float> out(kN);
    ok(launch(nullptr, "race", blocks, kN, kN * 4, [kernel, o = out.get()] { kernel(o); }));
    ok(cudaDeviceSynchronize());
  }
};

TEST_F(Races, OrderedKernelsAreQuiet) {
  for (const unsigned blocks : {1u, 3u}) {
    run(neighbours_static<true>, blocks);
    run(neighbours_dynamic<true>, blocks);
    run(neighbours_in_warp<true>, blocks);
    run(reuse<true>, blocks);
  }
}

#if TRIREME_EMULATOR_TSAN
using RacesDeathTest = Races;

TEST_F(RacesDeathTest, MissingBarriersAreReported) {
  EXPECT_DEATH(run(neighbours_static<false>), "ThreadSanitizer: data race(.|\n)*neighbours_static");
  EXPECT_DEATH(run(neighbours_dynamic<false>), "ThreadSanitizer: data race");
  EXPECT_DEATH(run(neighbours_in_warp<false>), "ThreadSanitizer: data race");
  EXPECT_DEATH(run(reuse<false>), "ThreadSanitizer: data race(.|\n)*reuse");
}
#endif

}  // namespace
}  // namespace emulator::test
