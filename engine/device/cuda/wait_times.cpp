#include "engine/device/cuda/wait_times.h"

#include "engine/device/launch.h"

namespace trireme::cuda {
namespace {

Event make_timing_event() {
  cudaEvent_t raw = nullptr;
  check_runtime(cudaEventCreate(&raw), "wait", "cudaEventCreate");
  return Event(raw);
}

}  // namespace

void WaitTimes::wait(Context& gpu, const Event& event) {
  constexpr size_t kMostPairs =
      1 << 14;  // who never reads the times must not collect events for ever
  if (used_ == kMostPairs) return cuda::wait(gpu.main, event);
  if (used_ == pairs_.size()) pairs_.push_back({make_timing_event(), make_timing_event()});
  Pair& pair = pairs_[used_++];
  record(pair.before, gpu.main);
  cuda::wait(gpu.main, event);
  record(pair.after, gpu.main);
}

double WaitTimes::take_seconds() {
  double seconds = 0;
  for (size_t i = 0; i < used_; ++i) {
    float ms = 0;
    check_runtime(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(pairs_[i].before.raw()),
                                       static_cast<cudaEvent_t>(pairs_[i].after.raw())),
                  "wait", "cudaEventElapsedTime");
    seconds += static_cast<double>(ms) * 1e-3;
  }
  used_ = 0;
  return seconds;
}

void wait_for(Context& gpu, const Event& event) { gpu.waits->wait(gpu, event); }

double take_wait_seconds(Context& gpu) { return gpu.waits->take_seconds(); }

}  // namespace trireme::cuda
