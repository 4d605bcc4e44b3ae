// Streams and events of the host interface.
#include "tests/emulator/event.h"

#include <chrono>

#include "tests/emulator/report.h"

using namespace emulator::detail;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool known(cudaEvent_t event) { return state().events.count(event) != 0; }

bool completed(const CUevent_st& event) {
  return !event.stream || event.stream->completed >= event.number;
}

// During capture, records only mark the position in the stream.
cudaError_t record_captured(CUevent_st& event, const std::shared_ptr<Stream>& stream) {
  const auto& capture = stream->capture;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  event.capture = capture;
  event.stream = stream;
  event.number = capture->branches[stream.get()].size();
  return cudaSuccess;
}

cudaError_t wait_captured(const std::shared_ptr<Stream>& stream, const CUevent_st& event,
                          Lock& lock) {
  const auto capture = event.capture;
  if (capture && !state().captures.count(capture)) return cudaErrorCapturedEvent;
  if (!capture) return invalidate(*stream->capture, cudaErrorStreamCaptureIsolation);
  if (stream->legacy) return refuse_legacy_in_capture(stream->device, lock);
  if (stream->capture && stream->capture != capture) {
    invalidate(*stream->capture, cudaErrorStreamCaptureMerge);
    return invalidate(*capture, cudaErrorStreamCaptureMerge);
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  stream->capture = capture;
  Operation operation;
  operation.kind = Operation::Kind::kWait;
  operation.awaited = event.stream;
  operation.awaited_number = event.number;
  capture->branches[stream.get()].push_back(std::move(operation));
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (!enter("cudaStreamCreate")) return keep(cudaErrorNoDevice);
  if (!stream || flags > cudaStreamNonBlocking) return keep(cudaErrorInvalidValue);
  auto made = std::make_shared<Stream>();
  made->device = current_device();
  made->blocking = flags != cudaStreamNonBlocking;
  made->priority = priority;
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  const Lock lock(state().mutex);
  state().streams[*stream] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

// The real call returns at once and lets the work finish; here the work finishes first.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (!enter("cudaStreamDestroy")) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  const auto stream = handle ? find_stream(handle) : nullptr;
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  if (stream->capture) return keep(invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported));
  run_until(stream, stream->issued, lock);
  state().progress.wait(lock, [&] { return !stream->helped; });
  state().streams.erase(handle);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (!enter("cudaStreamSynchronize")) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  if (stream->capture) return keep(invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported));
  if (stream->legacy)
    if (const cudaError_t error = refuse_legacy_in_capture(stream->device, lock))
      return keep(error);
  count_synchronization("cudaStreamSynchronize");
  run_until(stream, stream->issued, lock);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (!enter("cudaStreamQuery")) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return keep(cudaErrorInvalidResourceHandle);
  if (stream->capture) return keep(invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported));
  if (stream->completed == stream->issued) return cudaSuccess;
  run_one(stream, lock);
  return cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  if (!enter("cudaStreamWaitEvent")) return keep(cudaErrorNoDevice);
  Operation operation;
  {
    Lock lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream || !known(event)) return keep(cudaErrorInvalidResourceHandle);
    if (stream->capture || event->capture) return keep(wait_captured(stream, *event, lock));
    if (completed(*event)) return cudaSuccess;
    operation.kind = Operation::Kind::kWait;
    operation.name = "cudaStreamWaitEvent";
    operation.awaited = event->stream;
    operation.awaited_number = event->number;
  }
  return keep(add(handle, std::move(operation)));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!enter("cudaLaunchHostFunc")) return keep(cudaErrorNoDevice);
  if (!function) return keep(cudaErrorInvalidValue);
  Operation operation;
  operation.kind = Operation::Kind::kHost;
  operation.name = "cudaLaunchHostFunc";
  operation.run = [function, data] { function(data); };
  return keep(add(stream, std::move(operation)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!enter("cudaEventCreate")) return keep(cudaErrorNoDevice);
  if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming))
    return keep(cudaErrorInvalidValue);
  *event = new CUevent_st;
  (*event)->device = current_device();
  (*event)->timed = !(flags & cudaEventDisableTiming);
  const Lock lock(state().mutex);
  state().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!enter("cudaEventDestroy")) return keep(cudaErrorNoDevice);
  const Lock lock(state().mutex);
  if (!state().events.erase(event)) return keep(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  if (!enter("cudaEventRecord")) return keep(cudaErrorNoDevice);
  {
    const Lock lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream || !known(event) || event->device != stream->device)
      return keep(cudaErrorInvalidResourceHandle);
    if (stream->capture) return keep(record_captured(*event, stream));
  }
  auto stamp = std::make_shared<Stamp>();
  Operation operation;
  operation.name = "cudaEventRecord";
  operation.run = [stamp] { stamp->seconds = now(); };
  if (const cudaError_t error = add(handle, std::move(operation))) return keep(error);
  const Lock lock(state().mutex);
  event->capture = nullptr;
  event->stream = find_stream(handle);
  event->number = event->stream->issued;
  event->stamp = stamp;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!enter("cudaEventSynchronize")) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  if (!known(event)) return keep(cudaErrorInvalidResourceHandle);
  if (event->capture) return keep(invalidate(*event->capture, cudaErrorCapturedEvent));
  count_synchronization("cudaEventSynchronize");
  if (event->stream) run_until(std::shared_ptr(event->stream), event->number, lock);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!enter("cudaEventQuery")) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  if (!known(event)) return keep(cudaErrorInvalidResourceHandle);
  if (event->capture) return keep(invalidate(*event->capture, cudaErrorCapturedEvent));
  if (completed(*event)) return cudaSuccess;
  run_one(std::shared_ptr(event->stream), lock);
  return keep(cudaErrorNotReady);  // as in the real runtime: the next error query returns it
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!enter("cudaEventElapsedTime")) return keep(cudaErrorNoDevice);
  const Lock lock(state().mutex);
  if (!known(start) || !known(end) || !start->timed || !end->timed || !start->stamp || !end->stamp)
    return keep(cudaErrorInvalidResourceHandle);
  if (!completed(*start) || !completed(*end)) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((end->stamp->seconds - start->stamp->seconds) * 1e3);
  return cudaSuccess;
}
