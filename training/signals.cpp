#include "training/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>

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
    // The second interrupt means now: back to the default action.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(SIGINT, &action, nullptr);
  }
  raise_to(StopRequest::kSaveAndStop);
}

void install(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &g_previous[signal]);
}

}  // namespace

SignalRequests::SignalRequests() {
  g_request = 0;
  install(SIGUSR1);
  install(SIGUSR2);
}

void SignalRequests::training_begins(bool sigterm_saves) {
  install(SIGINT);
  if (sigterm_saves) install(SIGTERM);
}

SignalRequests::~SignalRequests() {
  for (const auto& [signal, action] : g_previous) sigaction(signal, &action, nullptr);
  g_previous.clear();
}

StopRequest SignalRequests::take() { return static_cast<StopRequest>(g_request.exchange(0)); }

}  // namespace trireme
