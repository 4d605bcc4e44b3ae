// Stream capture: recorded operations, and forbidden calls with the real error.
#include <thread>

#include "tests/emulator/test_support.h"

namespace emulator::test {
namespace {

using CaptureTest = EmulatorTest;

constexpr auto kGlobal = cudaStreamCaptureModeGlobal;

void append(cudaStream_t stream, std::vector<int>* to, int value) {
  ok(enqueue(stream, "append", [to, value] { to->push_back(value); }));
}

struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  explicit Graph(cudaStream_t captured) {
    ok(cudaStreamEndCapture(captured, &graph));
    ok(cudaGraphInstantiate(&executable, graph));
    ok(cudaGraphDestroy(graph));
  }
  ~Graph() { cudaGraphExecDestroy(executable); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

TEST_F(CaptureTest, RecordsAndReplays) {
  TestStream stream, other;
  std::vector<int> ran;
  ok(cudaStreamBeginCapture(stream, kGlobal));
  append(stream, &ran, 1);
  append(stream, &ran, 2);
  cudaStreamCaptureStatus status{};
  ok(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  const Graph graph(stream);
  ok(cudaDeviceSynchronize());
  EXPECT_TRUE(ran.empty());
  ok(cudaGraphLaunch(graph.executable, other));
  ok(cudaGraphLaunch(graph.executable, other));
  EXPECT_TRUE(ran.empty());
  ok(cudaStreamSynchronize(other));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 1, 2}));
  EXPECT_EQ(counters().graph_launches, 2);
}

TEST_F(CaptureTest, BranchesJoinByEvents) {
  TestStream origin, branch;
  TestEvent fork, join;
  std::vector<int> ran;
  ok(cudaStreamBeginCapture(origin, kGlobal));
  append(origin, &ran, 1);
  ok(cudaEventRecord(fork, origin));
  ok(cudaStreamWaitEvent(branch, fork));
  append(branch, &ran, 2);
  append(origin, &ran, 3);
  ok(cudaEventRecord(join, branch));
  ok(cudaStreamWaitEvent(origin, join));
  append(origin, &ran, 4);
  const Graph graph(origin);
  ok(cudaGraphLaunch(graph.executable, origin));
  ok(cudaStreamSynchronize(origin));
  EXPECT_EQ(ran, (std::vector<int>{1, 3, 2, 4}));  // a branch runs as late as possible
  EXPECT_EQ(cudaStreamWaitEvent(branch, fork), cudaErrorCapturedEvent);
}

TEST_F(CaptureTest, UnjoinedBranch) {
  TestStream origin, branch;
  TestEvent fork;
  std::vector<int> ran;
  ok(cudaStreamBeginCapture(origin, kGlobal));
  ok(cudaEventRecord(fork, origin));
  ok(cudaStreamWaitEvent(branch, fork));
  append(branch, &ran, 1);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(origin, &graph), cudaErrorStreamCaptureInvalidated);
  ok(cudaStreamBeginCapture(origin, kGlobal));
  ok(cudaEventRecord(fork, origin));
  ok(cudaStreamWaitEvent(branch, fork));
  append(branch, &ran, 1);
  EXPECT_EQ(cudaStreamEndCapture(origin, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

// Error of a call while a stream captures, which invalidates the capture.
template <class Call>
cudaError_t while_capturing(cudaStreamCaptureMode mode, unsigned flags, cudaError_t at_end,
                            Call&& call) {
  const TestStream stream(flags);
  ok(cudaStreamBeginCapture(stream, mode));
  const cudaError_t error = call(stream);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), at_end);
  if (graph) ok(cudaGraphDestroy(graph));
  return error;
}

template <class Call>
cudaError_t invalidating(Call&& call, unsigned flags = cudaStreamNonBlocking) {
  return while_capturing(kGlobal, flags, cudaErrorStreamCaptureInvalidated, call);
}

TEST_F(CaptureTest, ForbiddenCalls) {
  constexpr auto kUnsupported = cudaErrorStreamCaptureUnsupported;
  DeviceArray<float> a(1);
  TestEvent outside, captured;
  TestStream other;
  float host = 0;
  void* none = nullptr;
  EXPECT_EQ(invalidating([](cudaStream_t s) { return cudaStreamSynchronize(s); }), kUnsupported);
  EXPECT_EQ(invalidating([](cudaStream_t s) { return cudaStreamQuery(s); }), kUnsupported);
  EXPECT_EQ(invalidating([](cudaStream_t) { return cudaDeviceSynchronize(); }), kUnsupported);
  EXPECT_EQ(invalidating([&](cudaStream_t) { return cudaMalloc(&none, 4); }), kUnsupported);
  EXPECT_EQ(invalidating([&](cudaStream_t) {
              return cudaMemcpy(&host, a.get(), 4, cudaMemcpyDeviceToHost);
            }),
            kUnsupported);
  EXPECT_EQ(invalidating([&](cudaStream_t s) {
              ok(cudaEventRecord(captured, s));
              return cudaEventSynchronize(captured);
            }),
            cudaErrorCapturedEvent);
  ok(cudaEventRecord(outside, other));
  EXPECT_EQ(invalidating([&](cudaStream_t s) { return cudaStreamWaitEvent(s, outside); }),
            cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(invalidating([&](cudaStream_t) { return cudaMemsetAsync(a.get(), 0, 4, nullptr); },
                         cudaStreamDefault),
            cudaErrorStreamCaptureImplicit);
  ok(cudaDeviceSynchronize());
}

TEST_F(CaptureTest, ModesSayWhoIsConcerned) {
  void* memory = nullptr;
  const auto allocate_elsewhere = [&](cudaStream_t) {
    cudaError_t error = cudaSuccess;
    std::thread([&] { error = cudaMalloc(&memory, 4); }).join();
    return error;
  };
  EXPECT_EQ(invalidating(allocate_elsewhere), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(while_capturing(cudaStreamCaptureModeThreadLocal, cudaStreamNonBlocking, cudaSuccess,
                            allocate_elsewhere),
            cudaSuccess);
  ok(cudaFree(memory));
  EXPECT_EQ(while_capturing(cudaStreamCaptureModeRelaxed, cudaStreamNonBlocking, cudaSuccess,
                            [&](cudaStream_t) { return cudaMalloc(&memory, 4); }),
            cudaSuccess);
  ok(cudaFree(memory));
}

TEST_F(CaptureTest, WrongBeginningsAndEnds) {
  TestStream stream;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, kGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  ok(cudaStreamBeginCapture(stream, kGlobal));
  EXPECT_EQ(cudaStreamBeginCapture(stream, kGlobal), cudaErrorIllegalState);
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = cudaStreamEndCapture(stream, &graph); }).join();
  EXPECT_EQ(error, cudaErrorStreamCaptureWrongThread);
  ok(cudaStreamEndCapture(stream, &graph));
  ok(cudaGraphDestroy(graph));
}

// A graph reads pageable memory when it runs.
TEST_F(CaptureTest, CopiesReadAtLaunch) {
  TestStream stream;
  DeviceArray<int> a(1);
  int host = 1;
  ok(cudaStreamBeginCapture(stream, kGlobal));
  ok(cudaMemcpyAsync(a.get(), &host, 4, cudaMemcpyHostToDevice, stream));
  const Graph graph(stream);
  host = 2;
  ok(cudaGraphLaunch(graph.executable, stream));
  ok(cudaStreamSynchronize(stream));
  EXPECT_EQ(a.read()[0], 2);
}

}  // namespace
}  // namespace emulator::test
