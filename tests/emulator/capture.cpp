// Stream capture and graphs. A graph holds its operations in the order in which lazy streams would
// run them: those of a branch only when the origin, or an earlier branch, waits for it.
#include "tests/emulator/block.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/report.h"
#include "tests/emulator/stream.h"

using namespace emulator::detail;

struct CUgraph_st {
  std::shared_ptr<std::vector<Operation>> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<std::vector<Operation>> nodes;
};

namespace emulator::detail {

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.invalid = true;
  return error;
}

cudaError_t refuse_in_capture(Lock&) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : state().captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool concerned = capture->mode == cudaStreamCaptureModeGlobal ||
                           (capture->mode == cudaStreamCaptureModeThreadLocal && mine);
    if (concerned) error = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return error;
}

cudaError_t refuse_legacy_in_capture(int device, Lock&) {
  for (const auto& [handle, stream] : state().streams)
    if (stream->capture && stream->blocking && stream->device == device)
      return invalidate(*stream->capture, cudaErrorStreamCaptureImplicit);
  return cudaSuccess;
}

}  // namespace emulator::detail

namespace {

// Moves the branch's first `count` operations to `out`, each after the operations that it waits
// for.
void flatten(Capture& capture, Stream* branch, std::size_t count,
             std::map<Stream*, std::size_t>& done, std::vector<Operation>& out) {
  std::vector<Operation>& operations = capture.branches[branch];
  while (done[branch] < count) {
    Operation& operation = operations[done[branch]++];
    if (operation.kind == Operation::Kind::kWait)
      flatten(capture, operation.awaited.get(), operation.awaited_number, done, out);
    else
      out.push_back(std::move(operation));
  }
}

cudaError_t build(Capture& capture, std::vector<Operation>& nodes) {
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  std::map<Stream*, std::size_t> done;
  Stream* origin = capture.origin.get();
  flatten(capture, origin, capture.branches[origin].size(), done, nodes);
  for (const auto& [stream, operations] : capture.branches)
    if (done[stream] < operations.size()) return cudaErrorStreamCaptureUnjoined;
  return cudaSuccess;
}

void end(const std::shared_ptr<Capture>& capture) {
  State& s = state();
  for (const auto& [handle, stream] : s.streams)
    if (stream->capture == capture) stream->capture = nullptr;
  s.captures.erase(capture);
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (!enter("cudaStreamBeginCapture")) return keep(cudaErrorNoDevice);
  const Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  if (stream->legacy) return keep(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return keep(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  state().captures.insert(std::move(capture));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  if (!enter("cudaStreamEndCapture")) return keep(cudaErrorNoDevice);
  const Lock lock(state().mutex);
  *graph = nullptr;
  const auto stream = find_stream(handle);
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  const auto capture = stream->capture;
  if (!capture) return keep(cudaErrorIllegalState);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return keep(cudaErrorStreamCaptureWrongThread);
  if (capture->origin != stream) return keep(invalidate(*capture, cudaErrorStreamCaptureUnmatched));
  auto nodes = std::make_shared<std::vector<Operation>>();
  const cudaError_t error = build(*capture, *nodes);
  end(capture);
  if (error) return keep(error);
  *graph = new CUgraph_st{std::move(nodes)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (!enter("cudaStreamIsCapturing")) return keep(cudaErrorNoDevice);
  const Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (stream->capture)
    *status = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (!enter("cudaGraphInstantiate")) return keep(cudaErrorNoDevice);
  if (!executable || !graph) return keep(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  if (!enter("cudaGraphLaunch")) return keep(cudaErrorNoDevice);
  if (!executable) return keep(cudaErrorInvalidValue);
  for (const Operation& node : *executable->nodes)
    if (const cudaError_t error = add(handle, node)) return keep(error);
  const Lock lock(state().mutex);
  ++state().counters.graph_launches;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return keep(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (!executable) return keep(cudaErrorInvalidValue);
  delete executable;
  return cudaSuccess;
}
