// Streams are lazy, ordered only by events and the null stream, and usable from several threads.
#include <atomic>
#include <cmath>
#include <thread>

#include "tests/emulator/test_support.h"

namespace emulator::test {
namespace {

using Streams = EmulatorTest;
using StreamsDeathTest = EmulatorTest;

// Queues the assignment of `value` to `*flag` (host memory: it shows when the work runs).
void set(cudaStream_t stream, int* flag, int value) {
  ok(enqueue(stream, "set", [flag, value] { *flag = value; }));
}

TEST_F(Streams, NothingRunsUntilItIsWaitedFor) {
  TestStream a, b;
  int first = 0, second = 0;
  set(a, &first, 1);
  set(b, &second, 2);
  EXPECT_EQ(first, 0);
  ok(cudaStreamSynchronize(b));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 2);
  ok(cudaStreamSynchronize(a));
  EXPECT_EQ(first, 1);
}

TEST_F(Streams, EventsCarryOrder) {
  TestStream a, b;
  TestEvent event;
  int x = 0, after = 0, seen = -1;
  set(a, &x, 1);
  ok(cudaEventRecord(event, a));
  set(a, &after, 1);
  ok(cudaStreamWaitEvent(b, event));
  ok(enqueue(b, "see", [&] { seen = x; }));
  ok(cudaStreamSynchronize(b));
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(after, 0);  // up to the record only
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(after, 1);
}

TEST_F(Streams, MissingWaitShows) {
  TestStream copy, compute;
  PinnedArray<float> host(1);
  host[0] = 3;
  DeviceArray<float> a(1), out(1);
  ok(cudaMemcpyAsync(a.get(), host.get(), 4, cudaMemcpyHostToDevice, copy));
  ok(launch(compute, "use", 1, 1, 0, [o = out.get(), i = a.get()] { *o = 2 * *i; }));
  ok(cudaStreamSynchronize(compute));
  ok(cudaStreamSynchronize(copy));
  EXPECT_TRUE(std::isnan(out.read()[0]));
}

TEST_F(Streams, PinnedMemoryIsReadWhenTheCopyRuns) {
  TestStream stream;
  PinnedArray<int> pinned(1);
  std::vector<int> pageable{1};
  DeviceArray<int> a(1), b(1);
  pinned[0] = 1;
  ok(cudaMemcpyAsync(a.get(), pinned.get(), 4, cudaMemcpyHostToDevice, stream));
  ok(cudaMemcpyAsync(b.get(), pageable.data(), 4, cudaMemcpyHostToDevice, stream));
  pinned[0] = pageable[0] = 2;
  ok(cudaStreamSynchronize(stream));
  EXPECT_EQ(a.read()[0], 2);  // the program changed it too early
  EXPECT_EQ(b.read()[0], 1);
}

TEST_F(Streams, CopiesBackArriveWhenWaitedFor) {
  TestStream stream;
  DeviceArray<int> a(std::vector<int>{7});
  PinnedArray<int> pinned(1);
  pinned[0] = 0;
  int pageable = 0;
  ok(cudaMemcpyAsync(pinned.get(), a.get(), 4, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(pinned[0], 0);
  EXPECT_EQ(counters().synchronized(), 1);  // the upload's
  ok(cudaMemcpyAsync(&pageable, a.get(), 4, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(pageable, 7);
  EXPECT_EQ(pinned[0], 7);
  EXPECT_EQ(counters().synchronizations.at("cudaMemcpyAsync to pageable memory"), 1);
}

TEST_F(Streams, NullStreamOrdersBlockingStreamsOnly) {
  TestStream blocking(cudaStreamDefault), other(cudaStreamNonBlocking);
  int x = 0, y = 0, z = 0;
  set(blocking, &x, 1);
  set(other, &y, 1);
  set(nullptr, &z, 1);
  ok(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(x, 1);
  EXPECT_EQ(y, 0);
  set(nullptr, &z, 2);
  set(blocking, &x, 2);
  set(other, &y, 2);
  ok(cudaStreamSynchronize(other));
  EXPECT_EQ(z, 1);
  ok(cudaStreamSynchronize(blocking));
  EXPECT_EQ(z, 2);
}

TEST_F(Streams, QueriesEndPolling) {
  TestStream stream;
  TestEvent event;
  int x = 0;
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);  // never recorded
  set(stream, &x, 1);
  ok(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady) << "it is kept like an error";
  int polls = 1;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++polls;
  EXPECT_EQ(cudaGetLastError(), polls > 1 ? cudaErrorNotReady : cudaSuccess);
  EXPECT_EQ(polls, 2);
  EXPECT_EQ(x, 1);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(Streams, ElapsedTimeAndHostFunctions) {
  TestStream stream;
  TestEvent start, end, untimed(cudaEventDisableTiming);
  int x = 0;
  float ms = -1;
  ok(cudaEventRecord(start, stream));
  ok(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        *static_cast<int*>(data) = 5;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      },
      &x));
  ok(cudaEventRecord(end, stream));
  ok(cudaEventRecord(untimed, stream));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ok(cudaEventSynchronize(end));
  EXPECT_EQ(x, 5);
  ok(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 2.0f);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  ok(cudaStreamSynchronize(stream));
}

TEST_F(StreamsDeathTest, HostFunctionsSeeNoDeviceMemory) {
  DeviceArray<int> a(1);
  TestStream stream;
  EXPECT_DEATH(
      {
        ok(cudaLaunchHostFunc(
            stream, [](void* data) { *static_cast<volatile int*>(data) = 5; }, a.get()));
        cudaStreamSynchronize(stream);
      },
      "touched device memory");
}

TEST_F(StreamsDeathTest, RuntimeCallsInsideWork) {
  TestStream stream;
  EXPECT_DEATH(
      {
        ok(enqueue(stream, "library", [] { cudaDeviceSynchronize(); }));
        cudaStreamSynchronize(stream);
      },
      "cudaDeviceSynchronize was called by queued work \\(library\\)");
}

TEST_F(Streams, HandlesAndDevices) {
  set_devices(2);
  TestStream here;
  TestEvent event;
  int unused = 0;
  EXPECT_EQ(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(&unused)),
            cudaErrorInvalidResourceHandle);
  ok(cudaSetDevice(1));
  EXPECT_EQ(launch(here, "k", 1, 1, 0, [] {}), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  TestStream there;
  int x = 0, seen = -1;
  ok(cudaSetDevice(0));
  set(here, &x, 1);
  ok(cudaEventRecord(event, here));
  ok(cudaSetDevice(1));
  ok(cudaStreamWaitEvent(there, event));  // events do cross devices
  ok(enqueue(there, "see", [&] { seen = x; }));
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(seen, 1);
}

TEST_F(Streams, DestroyFinishesTheWork) {
  int x = 0;
  {
    TestStream stream;
    set(stream, &x, 1);
  }
  EXPECT_EQ(x, 1);
}

// A sum over ranks, each an OS thread with its own stream.
TEST_F(Streams, RanksMeetInsideQueuedWork) {
  constexpr int kRanks = 4;
  std::atomic<int> arrived{0}, sum{0};
  std::atomic<bool> alike{true};
  const auto rank = [&](int r) {
    const TestStream stream;
    DeviceArray<int> a(32);
    ok(launch(stream, "fill", 1, 32, 0,
              [r, x = a.get()] { x[threadIdx.x] = __shfl_sync(0xffffffffu, r + 1, 3); }));
    ok(enqueue(stream, "all_reduce", [&, x = a.get()] {
      sum += x[31];
      ++arrived;
      block_until([&] { return arrived == kRanks; });
      x[0] = sum;
    }));
    ok(cudaStreamSynchronize(stream));
    if (a.read()[0] != 10) alike = false;
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) threads.emplace_back(rank, r);
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(alike);
}

// The host of one rank waits outside of CUDA for a rank that waits for this rank's stream.
TEST_F(Streams, HelpersRunStreamsOfHostsThatWaitElsewhere) {
  const TestStream mine, theirs;
  std::atomic<int> arrived{0};
  const auto meet = [&] {
    ++arrived;
    block_until([&] { return arrived == 2; });
  };
  ok(enqueue(theirs, "meet", meet));
  ok(enqueue(mine, "meet", meet));
  ok(cudaStreamSynchronize(mine));
  EXPECT_EQ(arrived, 2);
  ok(cudaStreamSynchronize(theirs));
}

}  // namespace
}  // namespace emulator::test
