// Watchdog: a thread of each rank that sends heartbeats, monitors those of the other ranks, and
// ends this rank when one is lost, whatever its other threads are doing.
//
// It wakes when a process of the host or a connection ends, and ten times a second. It calls no
// MPI. On a loss it
//   1. sets the time at which the process ends with ExitCode::kLostRank, one second from now (1.5
//      after a LossCause::kReported); another thread enforces it, even if all others hang, for
//      example while printing;
//   2. prints one line: the rank, the operation it waits in, the lost rank and the cause.
// Until then the other threads may leave by their own exceptions (Liveness::check); a rank that
// does so has ten seconds from stop() to end. After a LossCause::kReported, step 2 is delayed by
// half a second and left out if stop() is called meanwhile: the same failure often occurs on all
// ranks, and each then prints its own message.
//
// mpirun sends SIGTERM to the ranks that survive another's death, and SIGKILL one second later. If
// the process has no other handler of SIGTERM, the watchdog handles it: it first looks for a dead
// rank, and if there is none, calls the rank's on_termination() or lets the signal have its default
// action. After a known loss the signal is ignored: the rank ends anyway, and may still have to
// print.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "parallel/comm/liveness/peer_links.h"

namespace trireme {

// Prints one line for the user. Called from the watchdog's thread or by stop(), at most once for a
// loss and once for a SIGTERM.
using Announce = std::function<void(const std::string&)>;

class Watchdog {
 public:
  // liveness must have joined its board, if it has one. One watchdog at a time handles SIGTERM of a
  // process.
  // says_terminated: print a line when SIGTERM ends this rank. For runs on several hosts, where a
  // rank may not know of a loss on another host.
  Watchdog(Liveness& liveness, PeerLinks links, bool says_terminated, Announce announce);
  ~Watchdog();  // stop()
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Ends the thread and sends the peers on other hosts the loss that this rank knows of, or a
  // goodbye. Announces a loss that was not announced yet, unless it is a LossCause::kReported.
  void stop();

  // request: called in the watchdog's thread for each SIGTERM while no rank is lost; null: the
  // default action.
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
  bool announced_ = false;  // used by the thread, and by stop() after its end
  std::atomic<bool> stop_{false};
  std::atomic<void (*)()> on_termination_{nullptr};
  std::thread thread_;
};

}  // namespace trireme
