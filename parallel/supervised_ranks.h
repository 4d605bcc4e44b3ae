// Supervised launch: runs --ranks N with mpirun as a child process, for commands that save when
// stopped.
//
// mpirun ends its ranks one second after it gets SIGINT, SIGTERM or SIGHUP or one of its outputs is
// closed, whether they have saved or not. So it gets none of these: this process handles them and
// makes the ranks save and stop with SIGUSR2, which mpirun forwards. A second SIGINT or SIGTERM is
// sent to mpirun as SIGTERM. SIGUSR1 and SIGUSR2 are forwarded. mpirun writes to pipes of this
// process, which relays the output for as long as it is read. The newest 256 KiB of unread output
// are kept, and a line reports how much was dropped.
#pragma once

#include <optional>

namespace trireme {

// Call first in the command, before other threads start. Returns the exit code of the ranks, or
// nullopt if this process must run the command itself (must_start_ranks()).
std::optional<int> run_supervised_ranks(int ranks, int argc, char** argv);

}  // namespace trireme
