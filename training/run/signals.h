// Requests that arrive as signals, taken up between steps; one that comes before the first step is
// taken up after it.
//   SIGUSR1  save and go on          SIGUSR2  save and stop
//   SIGINT   save and stop; a second one ends the process at once. Before training begins there is
//            nothing to save: the first one ends it.
//   SIGTERM, SIGHUP, SIGPIPE (a closed standard output)
//            save and stop while training; SIGHUP and SIGPIPE only where they are not ignored (nohup).
//            mpirun sends SIGTERM to the survivors of a dead rank and SIGKILL a second later: there the watchdog
//            takes it, and hands it on where no rank is lost and all ranks are on this machine.
#pragma once

namespace trireme {

class World;

enum class StopRequest : int { kNone = 0, kSave = 1, kSaveAndStop = 2 };  // ordered: max() joins

class SignalRequests {
 public:
  SignalRequests();   // SIGUSR1 and SIGUSR2; make it first of all: their default ends the process
  ~SignalRequests();  // restores the previous actions
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;
  void training_begins(World& world);  // the others too
  StopRequest take();                  // the strongest request since the last call
};

}  // namespace trireme
