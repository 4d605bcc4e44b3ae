// Watchdog: a thread of each rank that shows the others that the rank runs, watches that they do,
// and ends the rank when one is lost, whatever the other threads are doing.
//
// It wakes when a process of the host or a connection ends, and ten times a second. It calls no
// MPI. On a loss it
//   1. sets the time at which the process ends with ExitCode::kLostRank, a second from now: another
//      thread sees to it, whatever all others are stuck in, printing included;
//   2. has one line printed: the rank, the operation it waits in, the lost rank and the cause.
// Until then the other threads may leave by their own exceptions (Liveness::check); a rank that
// does is given ten seconds from stop() on to end.
// Where a rank reported a failure of its own, 2 comes a moment later, because the same failure
// often meets all ranks, and each then prints its own.
//
// mpirun sends SIGTERM to the ranks that survive another's death, and SIGKILL a second later. Where
// nobody handles SIGTERM the watchdog does: it looks for the dead rank first, and when there is
// none calls the rank's own on_termination(), or lets the signal have its default action. After a
// known loss the signal is ignored: the rank ends anyway, and may have something to print.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "parallel/comm/liveness/peer_links.h"

namespace trireme {

// Prints one line for people; called once, from the watchdog's thread.
using Announce = std::function<void(const std::string&)>;

class Watchdog {
 public:
  // liveness must have joined its board. One watchdog at a time handles SIGTERM of a process. Where
  // there are other hosts, a rank that SIGTERM ends cannot know of a loss there; says_terminated:
  // it says so.
  Watchdog(Liveness& liveness, PeerLinks links, bool says_terminated, Announce announce);
  ~Watchdog();  // stop()
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Ends the thread and tells the peers on other hosts what this rank knows: a loss, or goodbye. A
  // loss that nobody has announced is announced here.
  void stop();

  // Called in the watchdog's thread for each SIGTERM while no rank is lost; null: the default
  // action.
  void on_termination(void (*request)()) { on_termination_ = request; }

 private:
  void loop();
  bool sleep(double seconds) const;  // false: stop() was called
  void end_run();
  void announce_loss();  // once
  void handle_sigterm();
  void give_up_sigterm(bool lost);

  Liveness& liveness_;
  PeerLinks links_;
  bool says_terminated_;
  Announce announce_;
  int wake_fd_;
  bool handles_sigterm_ = false;
  bool announced_ = false;  // of the thread, and of stop() after its end
  std::atomic<bool> stop_{false};
  std::atomic<void (*)()> on_termination_{nullptr};
  std::thread thread_;
};

}  // namespace trireme
