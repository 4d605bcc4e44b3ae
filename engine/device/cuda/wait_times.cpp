#include "engine/device/cuda/wait_times.h"

#include "engine/device/timing.h"

namespace trireme::cuda {
void WaitTimes::wait(Context& gpu, const Event& event) {
  // Who never reads the times must not collect events for ever.
  constexpr size_t kMostPairs = 1 << 14;
  if (used_ == kMostPairs) return cuda::wait(gpu.main, event);
  if (used_ == pairs_.size()) pairs_.push_back({make_timing_event(gpu), make_timing_event(gpu)});
  Pair& pair = pairs_[used_++];
  record(pair.before, gpu.main);
  cuda::wait(gpu.main, event);
  record(pair.after, gpu.main);
}

double WaitTimes::take_seconds() {
  double seconds = 0;
  for (size_t i = 0; i < used_; ++i) seconds += seconds_between(pairs_[i].before, pairs_[i].after);
  used_ = 0;
  return seconds;
}

void wait_for(Context& gpu, const Event& event) { gpu.waits->wait(gpu, event); }

double take_wait_seconds(Context& gpu) { return gpu.waits->take_seconds(); }

}  // namespace trireme::cuda
