// Requests by signals, handled between steps; one that arrives before the first step is handled
// after it.
//   SIGUSR1  save and continue       SIGUSR2  save and stop
//   SIGINT   save and stop; a second one ends the process at once. Before training begins there is
//            nothing to save: the first one ends it.
//   SIGTERM, SIGHUP, SIGPIPE (a closed standard output)
//            save and stop while training; SIGHUP and SIGPIPE only if they are not ignored (nohup).
//            mpirun sends SIGTERM to the survivors of a dead rank and SIGKILL a second later: there
//            the watchdog handles SIGTERM, and passes it on if no rank is lost and all ranks are on
//            this machine.
#pragma once

namespace trireme {

class World;

enum class StopRequest : int { kNone = 0, kSave = 1, kSaveAndStop = 2 };  // ordered: max() joins

class SignalRequests {
 public:
  SignalRequests();   // SIGUSR1 and SIGUSR2; construct first: their default ends the process
  ~SignalRequests();  // restores the previous actions
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;
  void training_begins(World& world);  // installs the other handlers
  StopRequest take();                  // strongest request since the last call
};

}  // namespace trireme
