// What the kernel says about a process of this machine.
#pragma once

namespace trireme {

struct ProcessState {
  char letter = '?';    // as in /proc/PID/status: R, S, D, T (stopped), t, Z, ...; '?': not known
  bool traced = false;  // by a debugger
};
ProcessState process_state(int pid);

}  // namespace trireme
