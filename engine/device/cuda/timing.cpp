#include "engine/device/timing.h"

#include <cuda_runtime.h>

#include "engine/device/launch.h"

namespace trireme::cuda {

Event make_timing_event(Context&) {
  cudaEvent_t raw = nullptr;
  check_runtime(cudaEventCreateWithFlags(&raw, cudaEventDefault), "timing event",
                "cudaEventCreateWithFlags");
  return Event(raw);
}

double seconds_between(const Event& begin, const Event& end) {
  synchronize(end);
  float milliseconds = 0;
  check_runtime(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin.raw()),
                                     static_cast<cudaEvent_t>(end.raw())),
                "timing event", "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

DeviceMemory device_memory(const Context& gpu) {
  use_device(gpu);
  size_t available = 0, total = 0;
  check_runtime(cudaMemGetInfo(&available, &total), "device memory", "cudaMemGetInfo");
  return {static_cast<int64_t>(total), static_cast<int64_t>(total - available)};
}

}  // namespace trireme::cuda
