// Device time of every kernel and library call of a GPU's streams, by name. Implemented with the
// runtime.
//
// While timing is on, two events surround each call, which slows the run down somewhat, and no
// graph may be captured.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

struct LaunchTime {
  std::string name;  // of the launch; a matrix product includes its sizes
  int64_t calls = 0;
  double seconds = 0;  // of all calls
};

// Discards times that were not taken.
TRIREME_CUDA_DECL void start_launch_times(Context& gpu);
// Ends timing, waits for the calls and returns their times, longest total first. CheckFailed if
// timing is off.
TRIREME_CUDA_DECL std::vector<LaunchTime> take_launch_times(Context& gpu);

}  // namespace trireme::cuda
