// Signal handlers of a training run: signals request a save or a stop, which the run handles
// between steps. A request before the first step is handled after that step.
//   SIGUSR1  save and continue
//   SIGUSR2  save and stop
//   SIGINT   save and stop; a second SIGINT ends the process at once. Before training begins there
//            is nothing to save, so the first SIGINT ends the process.
//   SIGTERM, SIGHUP, SIGPIPE (a closed standard output)
//            save and stop, once training has begun. SIGHUP and SIGPIPE are not handled if they
//            were ignored when the run started (nohup).
//            mpirun sends SIGTERM to the survivors of a dead rank, and SIGKILL a second later. In
//            runs of several ranks, except under srun, the watchdog therefore handles SIGTERM: it
//            requests a save and stop only if no rank is lost and mpirun's ranks are all on this
//            machine, and otherwise ends this rank.
#pragma once

namespace trireme {

class World;

// Ordered, so that the maximum over ranks or signals is the strongest request.
enum class StopRequest : int { kNone = 0, kSave = 1, kSaveAndStop = 2 };

class SignalRequests {
 public:
  // Installs the handlers of SIGUSR1 and SIGUSR2, and unblocks both. Construct early: their default
  // action ends the process, unless its parent has blocked them (parallel/child_process.h).
  SignalRequests();
  // Restores the previous actions, but ignores requests whose default action would end the process:
  // one that arrives twice must not replace the run's exit code.
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;
  void training_begins(World& world);  // installs the other handlers
  // The same for a process that starts runs and passes the requests on to them.
  void runs_begin();
  StopRequest take();           // returns and clears the strongest request since the last call
  StopRequest pending() const;  // the same without clearing it

 private:
  static void install_stops();
};

}  // namespace trireme
