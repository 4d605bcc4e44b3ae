// Kernel state of a process of this machine.
#pragma once

#include <iosfwd>

namespace trireme {

struct ProcessState {
  // As in /proc/PID/status: R, S, D, T (stopped), t, Z, ...; '?': no such process, or not readable.
  char letter = '?';
  bool traced = false;  // by a debugger
  // Crashed, and its core is being dumped: counts as dead, although it has not ended yet.
  bool dumping = false;
};
ProcessState process_state(int pid);
ProcessState read_process_state(std::istream& status);  // contents of /proc/PID/status

}  // namespace trireme
