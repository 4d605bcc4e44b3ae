// Alternate signal stack of a thread (sigaltstack).
//
// oneDNN 2.6's generated code keeps data where a handler on the same stack overwrites it: a
// training run that received SIGUSR1 a few hundred times ended with a corrupted heap or a
// segmentation fault. Linux delivers a process-wide signal to the main thread unless it blocks the
// signal, and a fault to the thread that caused it. Hence the main thread and the compute threads
// have an alternate stack, and handlers are installed with SA_ONSTACK.
#pragma once

namespace trireme {

// Gives the calling thread an alternate stack for its lifetime. No effect if it has one, such as a
// sanitizer's, or if memory is short.
void use_signal_stack();

}  // namespace trireme
