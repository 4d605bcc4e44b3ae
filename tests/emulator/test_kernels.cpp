// The kernel language: indices, barriers, warp collectives, atomics, shared memory, and detection
// of kernels that misuse them.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "tests/emulator/test_support.h"

namespace emulator::test {
namespace {

constexpr unsigned kAll = 0xffffffffu;

class Kernels : public EmulatorTest {
 protected:
  // Runs a kernel and synchronizes.
  static void run(dim3 grid, dim3 block, const std::function<void()>& body,
                  std::size_t shared = 0) {
    ok(launch(nullptr, "planted", grid, block, shared, body));
    ok(cudaStreamSynchronize(nullptr));
  }
};
using KernelsDeathTest = Kernels;

TEST_F(Kernels, IndicesCoverGridAndBlockOnce) {
  const dim3 grid(3, 2, 2), block(4, 2, 4);
  const int n = 3 * 2 * 2 * 32;
  DeviceArray<int> seen(std::vector<int>(n, 0));
  int* out = seen.get();
  run(grid, block, [out] {
    const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    ++out[b * 32 + t];
  });
  EXPECT_EQ(seen.read(), std::vector<int>(n, 1));
}

__global__ void reverse(const double* in, double* out) {
  __shared__ double tile[96];
  tile[threadIdx.x] = in[blockIdx.x * 96 + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 96 + threadIdx.x] = tile[95 - threadIdx.x];
  __syncthreads();
}

TEST_F(Kernels, BarriersInBothOrders) {
  std::vector<double> x(192), want(192);
  for (std::size_t i = 0; i < 192; ++i) x[i] = static_cast<double>(i);
  for (std::size_t i = 0; i < 192; ++i) want[i] = x[i / 96 * 96 + 95 - i % 96];
  DeviceArray<double> in(x), out(192);
  for (const Order order : {Order::kForward, Order::kBackward}) {
    set_order(order);
    run(2, 96, [i = in.get(), o = out.get()] { reverse(i, o); });
    EXPECT_EQ(out.read(), want);
  }
}

// The order of blocks and threads can be reversed, to reveal what a program takes for granted.
TEST_F(Kernels, OrderOfBlocksAndThreads) {
  const auto order_of = [](Order order) {
    set_order(order);
    DeviceArray<int> seen(std::vector<int>(256, -1)), n(std::vector<int>{0});
    run(2, 128, [s = seen.get(), c = n.get()] {
      s[atomicAdd(c, 1)] = static_cast<int>(blockIdx.x * 128 + threadIdx.x);
    });
    return seen.read();
  };
  std::vector<int> want(256);
  for (int i = 0; i < 256; ++i) want[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(order_of(Order::kForward), want);
  EXPECT_EQ(order_of(Order::kBackward), std::vector<int>(want.rbegin(), want.rend()));
}

__global__ void reverse_without_barrier(const double* in, double* out) {
  double* tile = static_cast<double*>(dynamic_shared());
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[95 - threadIdx.x];
}

TEST_F(Kernels, MissingBarrierGivesWrongResults) {
#if TRIREME_EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer reports it: test_races.cpp";
#endif
  DeviceArray<double> in(std::vector<double>(96, 1.0)), out(96);
  run(
      1, 96, [i = in.get(), o = out.get()] { reverse_without_barrier(i, o); }, 96 * 8);
  int nans = 0;
  for (const double v : out.read()) nans += std::isnan(v);
  EXPECT_GT(nans, 0);
}

TEST_F(Kernels, BlockVotes) {
  DeviceArray<int> out(3);
  run(1, 64, [o = out.get()] {
    const int count = __syncthreads_count(threadIdx.x < 10);
    const int any = __syncthreads_or(threadIdx.x == 63), all = __syncthreads_and(threadIdx.x < 63);
    if (threadIdx.x == 0) o[0] = count, o[1] = any, o[2] = all;
  });
  EXPECT_EQ(out.read(), (std::vector<int>{10, 1, 0}));
}

template <class T>
void check_shuffles() {
  DeviceArray<T> out(32 * 5);
  ok(launch(nullptr, "shuffles", 1, 32, 0, [o = out.get()] {
    const T v = static_cast<T>(threadIdx.x + 1);
    const unsigned t = threadIdx.x;
    o[t] = __shfl_sync(kAll, v, 7);
    o[32 + t] = __shfl_xor_sync(kAll, v, 5);
    o[64 + t] = __shfl_up_sync(kAll, v, 3);
    o[96 + t] = __shfl_down_sync(kAll, v, 4);
    o[128 + t] = __shfl_sync(kAll, v, 9, 8);  // the second of each segment of eight
  }));
  const std::vector<T> got = out.read();
  for (int t = 0; t < 32; ++t) {
    const auto at = [&](int i) { return static_cast<int>(got[static_cast<std::size_t>(i)]); };
    EXPECT_EQ(at(t), 8);
    EXPECT_EQ(at(32 + t), (t ^ 5) + 1);
    EXPECT_EQ(at(64 + t), (t < 3 ? t : t - 3) + 1);
    EXPECT_EQ(at(96 + t), (t + 4 < 32 ? t + 4 : t) + 1);
    EXPECT_EQ(at(128 + t), t / 8 * 8 + 1 + 1);
  }
}

TEST_F(Kernels, ShufflesOfAllSizes) {
  check_shuffles<std::int8_t>();
  check_shuffles<std::uint16_t>();
  check_shuffles<float>();
  check_shuffles<double>();
}

TEST_F(Kernels, WarpVotesAndReductions) {
  DeviceArray<unsigned> out(5 * 64);
  run(1, 64, [o = out.get()] {
    unsigned* mine = o + threadIdx.x * 5;
    mine[0] = __ballot_sync(kAll, threadIdx.x % 3 == 0);
    mine[1] = static_cast<unsigned>(__any_sync(kAll, threadIdx.x == 40));
    mine[2] = static_cast<unsigned>(__all_sync(kAll, threadIdx.x < 32));
    mine[3] = __reduce_add_sync(kAll, threadIdx.x);
    mine[4] = static_cast<unsigned>(__reduce_min_sync(kAll, -static_cast<int>(threadIdx.x)));
  });
  const auto got = out.read();
  for (unsigned t = 0; t < 64; ++t) {
    const bool first = t < 32;
    EXPECT_EQ(got[t * 5], first ? 0x49249249u : 0x92492492u);
    EXPECT_EQ(got[t * 5 + 1], first ? 0u : 1u);
    EXPECT_EQ(got[t * 5 + 2], first ? 1u : 0u);
    EXPECT_EQ(got[t * 5 + 3], first ? 496u : 1520u);
    EXPECT_EQ(static_cast<int>(got[t * 5 + 4]), first ? -31 : -63);
  }
}

TEST_F(Kernels, Atomics) {
  DeviceArray<int> ints(std::vector<int>{0, 0, 1000, 5, 7, 0});
  DeviceArray<unsigned long long> wide(std::vector<unsigned long long>{0});
  DeviceArray<float> sum(std::vector<float>{0.5f});
  run(2, 64, [i = ints.get(), w = wide.get(), s = sum.get()] {
    const int t = static_cast<int>(threadIdx.x);
    atomicAdd(&i[0], 1);
    atomicMax(&i[1], t);
    atomicMin(&i[2], t + 3);
    if (t == 0 && blockIdx.x == 0) {
      i[5] = atomicExch(&i[3], 6) + atomicCAS(&i[4], 7, 8) + atomicCAS(&i[4], 7, 9);
    }
    atomicAdd(w, 1ull << 40);
    atomicAdd(s, 0.25f);
  });
  EXPECT_EQ(ints.read(), (std::vector<int>{128, 63, 3, 6, 8, 5 + 7 + 8}));
  EXPECT_EQ(wide.read()[0], 128ull << 40);
  EXPECT_EQ(sum.read()[0], 32.5f);
}

TEST_F(Kernels, DynamicSharedMemoryStartsPoisonedInEveryBlock) {
  DeviceArray<float> out(4);
  run(
      2, 32,
      [o = out.get()] {
        auto* s = static_cast<float*>(dynamic_shared());
        if (threadIdx.x == 0) o[blockIdx.x * 2] = s[31];
        __syncthreads();
        s[threadIdx.x] = static_cast<float>(threadIdx.x);
        __syncthreads();
        if (threadIdx.x == 0) o[blockIdx.x * 2 + 1] = s[31];
      },
      32 * sizeof(float));
  const auto got = out.read();
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[2]));
  EXPECT_EQ(got[1], 31.0f);
  EXPECT_EQ(got[3], 31.0f);
}

TEST_F(Kernels, LargestBlock) {
  DeviceArray<int> out(1);
  run(3, 1024, [o = out.get()] {
    const int sum = __syncthreads_count(true);
    if (threadIdx.x == 1023) *o = sum;
  });
  EXPECT_EQ(out.read()[0], 1024);
}

TEST_F(Kernels, LaunchErrors) {
  const auto nothing = [] {};
  EXPECT_EQ(launch(nullptr, "k", dim3(0), 32, 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(nullptr, "k", dim3(1, 65536), 32, 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(nullptr, "k", 1, 1025, 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(nullptr, "k", 1, dim3(32, 33), 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(nullptr, "k", 1, 32, (227 << 10) + 1, nothing), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const Arguments arguments = Arguments::of(reinterpret_cast<const void*>(&reverse));
  EXPECT_EQ(launch(nullptr, "k", 1, 32, 49 << 10, nothing, arguments), cudaErrorInvalidValue);
  ok(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 49 << 10));
  ok(launch(nullptr, "k", 1, 32, 49 << 10, nothing, arguments));
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
            cudaErrorInvalidValue);
}

TEST_F(KernelsDeathTest, BarrierThatAThreadSkips) {
  EXPECT_DEATH(
      run(dim3(2, 2), 64,
          [] {
            if (blockIdx.x == 1 && threadIdx.x == 37) return;
            __syncthreads();
          }),
      "kernel planted, block \\(1,0,0\\), thread \\(0,0,0\\) waits at __syncthreads, which "
      "thread \\(37,0,0\\) does not reach: it has returned");
}

TEST_F(KernelsDeathTest, WarpCollectiveThatALaneSkips) {
  EXPECT_DEATH(run(1, 64,
                   [] {
                     if (threadIdx.x != 40) __shfl_sync(kAll, 1, 0);
                     __syncthreads();
                   }),
               "thread \\(32,0,0\\) waits at __shfl_sync, which thread \\(40,0,0\\) does not "
               "reach: it waits at __syncthreads");
}

TEST_F(KernelsDeathTest, LanesAtDifferentCollectives) {
  EXPECT_DEATH(run(1, 32,
                   [] {
                     if (threadIdx.x < 16)
                       __shfl_xor_sync(kAll, 1, 1);
                     else
                       __syncwarp();
                   }),
               "thread \\(16,0,0\\) is at __syncwarp while other lanes of its warp are at "
               "__shfl_xor_sync");
}

TEST_F(KernelsDeathTest, PartialMasksAndPartialWarps) {
  EXPECT_DEATH(run(1, 32, [] { __shfl_sync(0xffffu, 1, 0); }), "__shfl_sync with mask 0xffff");
  EXPECT_DEATH(run(1, 40, [] { __syncwarp(); }), "a warp of 8 lanes");
}

TEST_F(KernelsDeathTest, SharedMemoryThatWasNotAskedFor) {
  EXPECT_DEATH(run(1, 32, [] { dynamic_shared(); }), "uses dynamic shared memory");
}

TEST_F(KernelsDeathTest, KernelLanguageOutsideOfAKernel) {
  EXPECT_DEATH(__syncthreads(), "__syncthreads was called outside of a kernel");
}

TEST_F(KernelsDeathTest, TrapAndException) {
  EXPECT_DEATH(run(1, 32, [] { __trap(); }), "kernel planted, block .*: __trap");
  EXPECT_DEATH(run(1, 32, [] { throw std::runtime_error("odd"); }), "kernel planted.*threw: odd");
}

int deep(volatile char* below, int n) {
  volatile char room[1024];
  room[0] = below[0];
  return n == 0 ? room[0] : deep(room, n - 1) + room[0];
}

TEST_F(KernelsDeathTest, StackOverflow) {
  EXPECT_DEATH(run(1, 32,
                   [] {
                     volatile char first = 0;
                     deep(&first, 100000);
                   }),
               "emulator: kernel planted: a thread's stack overflowed");
}

TEST_F(Kernels, DeviceFunctionsFollowTheDevice) {
  EXPECT_EQ(min(3, 4), 3);
  EXPECT_EQ(max(3u, 4u), 4u);
  EXPECT_EQ(max(1.0f, std::numeric_limits<float>::quiet_NaN()), 1.0f);
  EXPECT_EQ(rsqrtf(4.0f), 0.5f);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
  EXPECT_EQ(__uint_as_float(__float_as_uint(-2.5f)), -2.5f);
  EXPECT_EQ(__umulhi(0x80000000u, 6u), 3u);
  EXPECT_EQ(__umul64hi(1ull << 63, 6ull), 3ull);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__popc(0xf0u), 4);
  static_assert(sizeof(float4) == 16 && alignof(float4) == 16 && alignof(double2) == 16);
  static_assert(alignof(int2) == 8 && sizeof(float3) == 12);
}

}  // namespace
}  // namespace emulator::test
