#include "engine/device/graph.h"

#include <cuda_runtime.h>

#include "engine/device/launch.h"

namespace trireme::cuda {
namespace {

cudaStream_t main_stream(const Context& gpu) { return static_cast<cudaStream_t>(gpu.main.raw); }

// The captured graph, until it has been instantiated.
struct Recording {
  cudaGraph_t raw = nullptr;
  ~Recording() {
    if (raw != nullptr) (void)cudaGraphDestroy(raw);
  }
};

constexpr const char* kWayOut = "recording a CUDA graph (not done with cuda.graphs \"off\")";

}  // namespace

Graph capture(Context& gpu, const std::function<void()>& work) {
  TRIREME_CHECK(!gpu.synchronous,
                "work cannot be captured on a context that waits after every launch");
  // Other ranks may be threads of this process: what they queue must not affect this capture. A
  // wait for the whole device by one of them, on the same device, still ends the capture.
  check_runtime(cudaStreamBeginCapture(main_stream(gpu), cudaStreamCaptureModeThreadLocal),
                "capture", "cudaStreamBeginCapture");
  Recording recording;
  gpu.capturing = true;
  try {
    work();
  } catch (...) {
    gpu.capturing = false;
    (void)cudaStreamEndCapture(main_stream(gpu), &recording.raw);
    (void)cudaGetLastError();  // clears the expected error: the recording is invalid
    throw;
  }
  gpu.capturing = false;
  check_runtime(cudaStreamEndCapture(main_stream(gpu), &recording.raw), kWayOut,
                "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  check_runtime(cudaGraphInstantiate(&executable, recording.raw, 0), kWayOut,
                "cudaGraphInstantiate");
  return Graph(executable);
}

void replay(Context& gpu, const Graph& graph) {
  TRIREME_CHECK(graph.present(), "replay() of an empty graph");
  check_runtime(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.raw()), main_stream(gpu)),
                "replay", "cudaGraphLaunch");
  ++gpu.launches;
}

void destroy_graph(void* raw) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(raw)); }

}  // namespace trireme::cuda
