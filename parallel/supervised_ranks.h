// --ranks N of a command that saves when it is stopped: mpirun as a child process.
//
// mpirun ends its ranks a second after a SIGINT, SIGTERM, SIGHUP or closed output of its own, saved
// or not. So it gets none of them: this process has them, and makes the ranks save and stop by
// SIGUSR2, which mpirun hands on. A second SIGINT or SIGTERM goes to mpirun as SIGTERM. SIGUSR1 and
// SIGUSR2 are handed on. mpirun writes to pipes of this process, which passes all on for as long as
// somebody reads; of output that nobody reads the newest 256 KiB are kept, and a line says how much
// was dropped.
#pragma once

#include <optional>

namespace trireme {

// Call first thing in the command, before other threads. Returns the exit code of the ranks, or
// nothing where this process is to run the command itself (must_start_ranks()).
std::optional<int> run_supervised_ranks(int ranks, int argc, char** argv);

}  // namespace trireme
