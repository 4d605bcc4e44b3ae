#include "engine/device/cuda/launch_times.h"

#include <algorithm>
#include <utility>

#include "engine/device/launch.h"
#include "engine/device/timing.h"

namespace trireme::cuda {

void LaunchTimes::begin(Context& gpu, std::string name, cudaStream_t stream) {
  TRIREME_CHECK(!gpu.capturing, name, ": recorded work is not timed call by call");
  pairs_.push_back({std::move(name), make_timing_event(gpu), make_timing_event(gpu)});
  record(pairs_.back().begin, Stream{stream});
}

// Calls are not nested.
void LaunchTimes::end(Context&, cudaStream_t stream) { record(pairs_.back().end, Stream{stream}); }

std::vector<LaunchTime> LaunchTimes::take() {
  std::map<std::string, LaunchTime> by_name;
  for (const Pair& pair : pairs_) {
    LaunchTime& all = by_name[pair.name];
    all.name = pair.name;
    ++all.calls;
    all.seconds += seconds_between(pair.begin, pair.end);
  }
  pairs_.clear();
  std::vector<LaunchTime> out;
  out.reserve(by_name.size());
  for (auto& [name, time] : by_name) out.push_back(std::move(time));
  std::ranges::stable_sort(out, std::ranges::greater{}, &LaunchTime::seconds);
  return out;
}

void start_launch_times(Context& gpu) { gpu.times = std::make_shared<LaunchTimes>(); }

std::vector<LaunchTime> take_launch_times(Context& gpu) {
  TRIREME_CHECK(gpu.times != nullptr, "launch times were not started");
  return std::exchange(gpu.times, nullptr)->take();
}

}  // namespace trireme::cuda
