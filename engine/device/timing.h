// Device-side timing, and the device's memory use. Implemented with the runtime.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Creates an event that records the time at which its stream reaches it; events of make_event() do
// not.
TRIREME_CUDA_DECL Event make_timing_event(Context& gpu);
// Seconds from one recorded timing event to a later one of the same stream. Waits for `end`.
TRIREME_CUDA_DECL double seconds_between(const Event& begin, const Event& end);

// Device memory in bytes as cudaMemGetInfo() reports it: the total, and the part in use by all
// processes, including the libraries and the runtime.
struct DeviceMemory {
  int64_t total = 0, used = 0;
  int64_t free() const { return total - used; }
};
// Makes the GPU the calling thread's current device.
TRIREME_CUDA_DECL DeviceMemory device_memory(const Context& gpu);

}  // namespace trireme::cuda
