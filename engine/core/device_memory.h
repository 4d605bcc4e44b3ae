// GPU memory for Buffer, from the CUDA runtime. Implemented in engine/device/.
#pragma once

#include <cstdint>

// Functions of the CUDA backend are declared weak: a program without the backend links, and they
// are null. None may be called before cuda::device_status() has reported a device.
#define TRIREME_CUDA_DECL [[gnu::weak]]

namespace trireme::cuda {

// Memory of the calling thread's current device, at least 256-byte aligned, or pinned host memory.
// bytes > 0. Content undefined. Allocation returns nullptr on failure; freeing first waits for all
// queued work of the device.
TRIREME_CUDA_DECL void* allocate_device(int64_t bytes);
TRIREME_CUDA_DECL void free_device(void* data);
TRIREME_CUDA_DECL void* allocate_pinned(int64_t bytes);
TRIREME_CUDA_DECL void free_pinned(void* data);

}  // namespace trireme::cuda
