// CUDA event pairs that time kernels and library calls (engine/device/launch_times.h). For CUDA
// sources only.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <string>
#include <vector>

#include "engine/device/launch_times.h"

namespace trireme::cuda {

class LaunchTimes {
 public:
  // Calls of begin() and end() alternate: timed calls do not nest.
  void begin(Context& gpu, std::string name, cudaStream_t stream);
  void end(Context& gpu, cudaStream_t stream);
  std::vector<LaunchTime> take();

 private:
  struct Pair {
    std::string name;
    Event begin, end;
  };
  std::vector<Pair> pairs_;
};

// Times one library call, from construction to destruction, while timing is on.
class TimedCall {
 public:
  template <class... Parts>
  TimedCall(Context& gpu, cudaStream_t stream, const Parts&... name) : gpu_(gpu), stream_(stream) {
    if (gpu.times != nullptr) gpu.times->begin(gpu, concat(name...), stream);
  }
  ~TimedCall() {
    if (gpu_.times != nullptr) gpu_.times->end(gpu_, stream_);
  }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

 private:
  Context& gpu_;
  cudaStream_t stream_;
};

}  // namespace trireme::cuda
