// Requests that arrive as signals, taken up between steps.
//   SIGUSR1  save and go on          SIGUSR2  save and stop
//   SIGINT   save and stop; a second one ends the process at once
//   SIGTERM  save and stop, only where nobody is about to kill this process: one process, or srun.
//            mpirun sends it to the survivors of a dead rank and SIGKILL a second later, so there it
//            keeps its default action.
#pragma once

namespace trireme {

enum class StopRequest : int { kNone = 0, kSave = 1, kSaveAndStop = 2 };  // ordered: max() joins

class SignalRequests {
 public:
  explicit SignalRequests(bool sigterm_saves);
  ~SignalRequests();  // restores the previous actions
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;
  StopRequest take();  // the strongest request since the last call
};

}  // namespace trireme
