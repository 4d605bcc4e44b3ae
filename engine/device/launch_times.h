// Device time of every kernel and library call of a GPU's streams, by name. Implemented with the
// runtime.
//
// While it is on, two events surround each call, so a run is somewhat slower; nothing may be
// recorded.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

struct LaunchTime {
  std::string name;  // of the launch; of a product with its sizes
  int64_t calls = 0;
  double seconds = 0;
};

TRIREME_CUDA_DECL void start_launch_times(Context& gpu);
// Ends it and waits for the calls. The one with the most time first.
TRIREME_CUDA_DECL std::vector<LaunchTime> take_launch_times(Context& gpu);

}  // namespace trireme::cuda
