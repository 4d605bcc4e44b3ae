// Counter of SIGTERM and SIGINT, which callers poll.
#pragma once

#include <atomic>
#include <csignal>

#include "engine/core/signal_stack.h"

namespace trireme {

// Counts signals received since construction. Also ignores SIGPIPE, so that writing the log to a
// closed pipe does not end the process.
class StopSignals {
 public:
  StopSignals() {
    count_ = 0;
    use_signal_stack();
    struct sigaction action {};
    action.sa_handler = [](int) { ++count_; };
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    std::signal(SIGPIPE, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail for this signal
  }
  static int count() { return count_; }
  // Ignores all three signals from now on, for a process that another process stops.
  static void leave_to_others() {
    for (const int signal : {SIGTERM, SIGINT, SIGPIPE})
      std::signal(signal, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail for these
  }

 private:
  static inline std::atomic<int> count_{0};
};

}  // namespace trireme
