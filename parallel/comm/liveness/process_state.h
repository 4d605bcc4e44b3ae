// What the kernel says about a process of this machine.
#pragma once

#include <iosfwd>

namespace trireme {

struct ProcessState {
  char letter = '?';    // as in /proc/PID/status: R, S, D, T (stopped), t, Z, ...; '?': not known
  bool traced = false;  // by a debugger
  // It has crashed and its memory is being written to a file: it is no more, though it has not
  // ended.
  bool dumping = false;
};
ProcessState process_state(int pid);
ProcessState read_process_state(std::istream& status);  // of /proc/PID/status

}  // namespace trireme
