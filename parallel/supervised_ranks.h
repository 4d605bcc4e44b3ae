// Supervised launch: runs --ranks N with mpirun as a child process, for commands that save when
// stopped.
//
// mpirun ends its ranks one second after it gets SIGINT, SIGTERM or SIGHUP or one of its outputs is
// closed, whether they have saved or not. So it gets none of these: this process handles them and
// makes the ranks save and stop with SIGUSR2, which mpirun forwards. Once the ranks are stopping,
// any further SIGINT or SIGTERM is sent to mpirun as SIGTERM. SIGUSR1 and SIGUSR2 are forwarded.
// mpirun writes to pipes of this process, which relays the output for as long as it is read. The
// newest 256 KiB of unread output are kept of stdout and of stderr, and a line reports how much was
// dropped. After mpirun has ended, output that nobody reads for three seconds is dropped.
#pragma once

#include <optional>

namespace trireme {

// Call first in the command, before other threads start. Returns mpirun's exit code, 128 + signal
// if a signal ended mpirun, or nullopt if this process must run the command itself
// (must_start_ranks(), parallel/launch.h). InputError as must_start_ranks() and
// prepare_for_mpirun().
std::optional<int> run_supervised_ranks(int ranks, int argc, char** argv);

}  // namespace trireme
