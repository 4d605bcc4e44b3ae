#include "engine/device/cuda/wait_times.h"

#include <algorithm>

#include "engine/device/timing.h"

namespace trireme::cuda {
void WaitTimes::wait(Context& gpu, const Event& event) {
  // Bounds the events for a caller that never reads the times.
  constexpr size_t kMaxPairs = 1 << 14;
  if (used_ == kMaxPairs) return cuda::wait(gpu.main, event);
  if (used_ == pairs_.size()) pairs_.push_back({make_timing_event(gpu), make_timing_event(gpu)});
  Pair& pair = pairs_[used_++];
  record(pair.before, gpu.main);
  cuda::wait(gpu.main, event);
  record(pair.after, gpu.main);
}

double WaitTimes::take_seconds(int64_t count) {
  double seconds = 0;
  const auto begin = pairs_.begin(), end = begin + count;
  for (auto pair = begin; pair != end; ++pair)
    seconds += seconds_between(pair->before, pair->after);
  std::rotate(begin, end, begin + static_cast<int64_t>(used_));
  used_ -= static_cast<size_t>(count);
  return seconds;
}

void wait_for(Context& gpu, const Event& event) { gpu.waits->wait(gpu, event); }

int64_t pending_wait_count(const Context& gpu) { return gpu.waits->count(); }

double take_wait_seconds(Context& gpu, int64_t count) { return gpu.waits->take_seconds(count); }

}  // namespace trireme::cuda
