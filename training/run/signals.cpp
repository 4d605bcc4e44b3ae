#include "training/run/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>

#include "engine/core/signal_stack.h"
#include "engine/observe/console.h"
#include "engine/observe/log.h"
#include "parallel/comm/world.h"

namespace trireme {
namespace {

std::atomic<int> g_request{0};
std::map<int, struct sigaction> g_previous;

void raise_to(StopRequest request) {
  int seen = g_request.load(std::memory_order_relaxed);
  const int wanted = static_cast<int>(request);
  while (seen < wanted && !g_request.compare_exchange_weak(seen, wanted)) {
  }
}

extern "C" void on_signal(int signal) {
  if (signal == SIGUSR1) return raise_to(StopRequest::kSave);
  if (signal == SIGINT) {
    // A second interrupt ends the process: restore the default action.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(SIGINT, &action, nullptr);
  }
  raise_to(StopRequest::kSaveAndStop);
}

// Both run in the watchdog's thread.
void on_termination() {
  raise_to(StopRequest::kSaveAndStop);
  console_drop_unread();
  log_info("SIGTERM: saving and stopping after this step");
}

void on_termination_by_mpirun() {
  raise_to(StopRequest::kSaveAndStop);
  console_drop_unread();
  log_info(
      "SIGTERM: saving and stopping after this step; mpirun kills its ranks 1 s after SIGTERM ",
      "(odls_base_sigkill_timeout); SIGUSR2 to mpirun, or --ranks instead of mpirun, leaves them ",
      "the time to save");
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

bool has_default_action(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return is_default(now);
}

void install(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(signal, &action, &g_previous[signal]);
}

}  // namespace

SignalRequests::SignalRequests() {
  g_request = 0;
  use_signal_stack();
  sigset_t requests;
  sigemptyset(&requests);
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    install(signal);
    sigaddset(&requests, signal);
  }
  sigprocmask(SIG_UNBLOCK, &requests, nullptr);
}

void SignalRequests::install_stops() {
  install(SIGINT);
  for (const int signal : {SIGHUP, SIGPIPE})
    if (has_default_action(signal)) install(signal);
}

void SignalRequests::runs_begin() {
  install_stops();
  install(SIGTERM);
}

void SignalRequests::training_begins(World& world) {
  install_stops();
  const std::string launcher = detect_launcher().name;
  // srun sends SIGTERM only to end a job, not to the survivors of a lost rank.
  if (world.size() == 1 || launcher == "srun")
    install(SIGTERM);
  else
    world.on_termination(launcher == "mpirun" ? on_termination_by_mpirun : on_termination);
}

SignalRequests::~SignalRequests() {
  for (auto& [signal, action] : g_previous) {
    const bool is_request = signal != SIGINT && signal != SIGPIPE;
    if (is_request && is_default(action)) action.sa_handler = SIG_IGN;
    sigaction(signal, &action, nullptr);
  }
  g_previous.clear();
}

StopRequest SignalRequests::pending() const { return static_cast<StopRequest>(g_request.load()); }

StopRequest SignalRequests::take() { return static_cast<StopRequest>(g_request.exchange(0)); }

}  // namespace trireme
