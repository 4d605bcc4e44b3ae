// Stack of a thread for signal handlers (sigaltstack).
//
// Generated code of oneDNN 2.6 keeps data where the stack pointer leads, and a handler that runs
// there overwrites it: a training run that got SIGUSR1 a few hundred times ended with a corrupted
// heap or a segmentation fault. Linux gives a signal of the whole process to the main thread
// unless that one blocks it, and a fault to the thread that caused it: so the main thread and those
// that compute have such a stack, and handlers are installed with SA_ONSTACK.
#pragma once

namespace trireme {

// Gives the calling thread one for its life. No effect where it has one, such as a sanitizer's, or
// where the system has no memory for it.
void use_signal_stack();

}  // namespace trireme
