// Requests that arrive as signals, taken up between steps; one that comes before the first step is
// taken up after it.
//   SIGUSR1  save and go on          SIGUSR2  save and stop
//   SIGINT   save and stop; a second one ends the process at once. Before training begins there is
//            nothing to save: the first one ends it.
//   SIGTERM  save and stop while training, only where nobody is about to kill this process: one process, or srun.
//            mpirun sends it to the survivors of a dead rank and SIGKILL a second later, so there it
//            keeps its default action.
#pragma once

namespace trireme {

enum class StopRequest : int { kNone = 0, kSave = 1, kSaveAndStop = 2 };  // ordered: max() joins

class SignalRequests {
 public:
  SignalRequests();   // SIGUSR1 and SIGUSR2; make it first of all: their default ends the process
  ~SignalRequests();  // restores the previous actions
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;
  void training_begins(bool sigterm_saves);  // SIGINT and SIGTERM too
  StopRequest take();                        // the strongest request since the last call
};

}  // namespace trireme
