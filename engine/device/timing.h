// Time on a device's own clock, and the memory taken there. Implemented with the runtime.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// An event that keeps the time at which its stream came to it; those of make_event() do not.
TRIREME_CUDA_DECL Event make_timing_event(Context& gpu);
// Seconds from one recorded timing event to a later one of the same stream. Waits for `end`.
TRIREME_CUDA_DECL double seconds_between(const Event& begin, const Event& end);

// Bytes of the device's memory: all that can be had, and what all its users have, the libraries and
// the runtime among them.
struct DeviceMemory {
  int64_t total = 0, used = 0;
  int64_t free() const { return total - used; }
};
TRIREME_CUDA_DECL DeviceMemory device_memory(const Context& gpu);

}  // namespace trireme::cuda
