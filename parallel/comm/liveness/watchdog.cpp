#include "parallel/comm/liveness/watchdog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <system_error>

#include "engine/core/signal_stack.h"
#include "engine/core/thread_name.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBeatSeconds = 0.1;
constexpr double kReportedGrace = 0.5;
constexpr double kLeaveGrace = 1.0;
constexpr double kShutdownGrace = 10;

constexpr int kNoListener = -1;
std::atomic<int> g_wake{kNoListener};
std::atomic<bool> g_terminated{false};

void wake(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

// If this handler is restored after its watchdog is destroyed, takes the default action.
extern "C" void on_sigterm(int) {
  const int before = errno;
  g_terminated = true;
  const int fd = g_wake.load();
  if (fd != kNoListener) {
    wake(fd);
  } else {
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
  }
  errno = before;
}

bool handles(const struct sigaction& action, void (*handler)(int)) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == handler;
}

void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

std::atomic<double> g_end_in{0};  // seconds, counted down

[[noreturn]] void end_process() { _exit(static_cast<int>(ExitCode::kLostRank)); }

// Ends the process after this time, whatever its threads are doing. Calling it again resets the
// time.
void end_process_after(double seconds) {
  static std::atomic<bool> running{false};
  g_end_in = seconds;
  if (running.exchange(true)) return;
  try {
    std::thread([] {
      constexpr double kStep = 0.01;
      block_all_signals();
      for (double left; (left = g_end_in.load()) > 0;) {
        std::this_thread::sleep_for(std::chrono::duration<double>(kStep));
        g_end_in.compare_exchange_strong(left, left - kStep);
      }
      end_process();
    }).detach();
  } catch (const std::system_error&) {
    end_process();  // no further thread is available: nothing to wait for
  }
}

}  // namespace

Watchdog::Watchdog(Liveness& liveness, PeerLinks links, bool says_terminated, Announce announce)
    : liveness_(liveness),
      links_(std::move(links)),
      says_terminated_(says_terminated),
      announce_(std::move(announce)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_fd_ < 0) throw Error("cannot create an event descriptor for the watchdog");
  struct sigaction current {};
  sigaction(SIGTERM, nullptr, &current);
  int nobody = kNoListener;
  if (handles(current, SIG_DFL) && g_wake.compare_exchange_strong(nobody, wake_fd_)) {
    g_terminated = false;
    use_signal_stack();
    struct sigaction action {};
    action.sa_handler = on_sigterm;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGTERM, &action, nullptr);
    handles_sigterm_ = true;
  }
  liveness_.beat();
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  stop();
  close(wake_fd_);
}

void Watchdog::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake(wake_fd_);
  thread_.join();
  const bool lost = liveness_.lost();
  if (lost) {
    end_process_after(kShutdownGrace);
    links_.broadcast_loss(liveness_.reason(), liveness_.cause());
    // The rank is leaving by an exception; the launcher's SIGKILL may arrive before it has printed
    // its message.
    if (liveness_.cause() != LossCause::kReported) announce_loss();
  } else {
    links_.say_goodbye();
  }
  if (handles_sigterm_) give_up_sigterm(lost);
}

void Watchdog::give_up_sigterm(bool lost) {
  struct sigaction current {};
  sigaction(SIGTERM, nullptr, &current);
  if (handles(current, on_sigterm)) signal(SIGTERM, lost ? SIG_IGN : SIG_DFL);
  g_wake = kNoListener;
  handles_sigterm_ = false;
  // A signal that arrived after the thread's last check.
  if (g_terminated.exchange(false) && !lost) kill(getpid(), SIGTERM);
}

void Watchdog::announce_loss() {
  if (announced_ || !announce_) return;
  announced_ = true;
  announce_(concat(liveness_.where(), " stopped: ", liveness_.reason()));
}

// Sleeps until an event, the next beat, or stop().
bool Watchdog::sleep(double seconds) const {
  std::vector<pollfd> ready{{wake_fd_, POLLIN, 0}};
  for (int fd : liveness_.process_handles()) ready.push_back({fd, POLLIN, 0});
  for (int fd : links_.descriptors()) ready.push_back({fd, POLLRDHUP, 0});
  poll(ready.data(), ready.size(), static_cast<int>(std::ceil(seconds * 1000)));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
  return !stop_;
}

void Watchdog::loop() {
  name_thread("watchdog");
  block_all_signals();
  auto last = Clock::now(), beaten = last;
  double pause = 0;
  while (sleep(pause)) {
    const auto now = Clock::now();
    if (seconds_between(beaten, now) >= kBeatSeconds) {
      liveness_.beat();
      links_.beat();
      beaten = now;
    }
    const double counted = std::min(seconds_between(last, now), kMaxCounted);
    last = now;
    // Read before the checks below, so that a rank that died before the signal was sent is seen.
    const bool terminated = handles_sigterm_ && g_terminated.exchange(false);
    links_.look(counted, liveness_);
    liveness_.look(counted);
    if (liveness_.lost()) return end_run();
    if (terminated) handle_sigterm();
    pause = std::clamp(kBeatSeconds - seconds_between(beaten, Clock::now()), 0.001, kBeatSeconds);
  }
}

void Watchdog::end_run() {
  const bool reported = liveness_.cause() == LossCause::kReported;
  end_process_after(kLeaveGrace + (reported ? kReportedGrace : 0));
  links_.broadcast_loss(liveness_.reason(), liveness_.cause());
  const auto end = Clock::now() + std::chrono::duration<double>(kReportedGrace);
  while (reported && !stop_ && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (!reported || !stop_) announce_loss();
}

void Watchdog::handle_sigterm() {
  if (void (*const request)() = on_termination_.load()) return request();
  liveness_.terminate();
  links_.say_terminated();
  signal(SIGTERM, SIG_DFL);  // a second one ends a rank that cannot print
  if (says_terminated_ && announce_)
    announce_(concat(liveness_.where(),
                     " stopped: ended by SIGTERM (the launcher ends the run; a rank ",
                     "on another machine may have been lost)"));
  // The signal is blocked in this thread; another thread takes it.
  kill(getpid(), SIGTERM);
}

}  // namespace trireme
