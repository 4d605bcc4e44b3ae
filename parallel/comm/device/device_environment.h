// Environment variables of the CUDA runtime, to be set before its first call.
#pragma once

namespace trireme {

// Sets variables that the user has not set. With several ranks, CUDA_MODULE_LOADING=EAGER: a kernel
// loaded at its first launch may wait for the whole device, which may be waiting for a peer's
// message. (A single rank has no such wait: it keeps lazy loading, so that library kernels that are
// never launched take no memory.) CUDA_DEVICE_MAX_CONNECTIONS: enough hardware queues that waiting
// for a message blocks no other stream. Call before the first use of a device, while the process is
// single-threaded.
void set_device_environment(int ranks);

}  // namespace trireme
