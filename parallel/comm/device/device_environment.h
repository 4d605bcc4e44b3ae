// What the CUDA runtime has to be told before its first call.
#pragma once

namespace trireme {

// Sets, where the user has not: with several ranks CUDA_MODULE_LOADING=EAGER, since a kernel that
// is loaded at its first launch may wait for the whole device, which may be waiting for a peer's
// message (a rank alone waits for nobody, and libraries' kernels that it never launches take no
// memory); and enough hardware queues (CUDA_DEVICE_MAX_CONNECTIONS) that a message that is waited
// for holds up no other stream. Before the first use of a device, while the process has one thread
// of its own.
void set_device_environment(int ranks);

}  // namespace trireme
