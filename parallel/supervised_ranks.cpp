#include "parallel/supervised_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "engine/observe/log.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/launch.h"

namespace trireme {
namespace {

constexpr std::array kHandled{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

// One output of mpirun on its way to ours.
class Relay {
 public:
  explicit Relay(int to) : to_(to) {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw Error(concat("cannot make a pipe for mpirun: ", std::strerror(errno)));
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Relay() {
    close_writer();
    ::close(ends_[0]);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int reader() const { return open_ ? ends_[0] : -1; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  // To be looked at for errors: nobody reads any more. -1: that is known.
  int destination() const { return broken_ ? -1 : to_; }
  void give_up() { broken_ = true; }
  bool broken() const { return broken_; }

  // Passes on what there is.
  void pump() {
    std::array<char, 1 << 16> bytes;
    for (ssize_t got; open_;) {
      got = ::read(ends_[0], bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return;  // nothing now
      if (got == 0) open_ = false;
      write_all(bytes.data(), static_cast<size_t>(got));
    }
  }

 private:
  void write_all(const char* bytes, size_t size) {
    while (size > 0 && !broken_) {
      const ssize_t written = ::write(to_, bytes, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) {  // somebody has made it non-blocking
        pollfd room{to_, POLLOUT, 0};
        ::poll(&room, 1, -1);
        continue;
      }
      if (written < 0) return give_up();
      bytes += written;
      size -= static_cast<size_t>(written);
    }
  }

  int to_;
  std::array<int, 2> ends_{-1, -1};
  bool open_ = true, broken_ = false;
};

// Signals as something to poll: blocked for the life of this object, and SIGPIPE ignored.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kHandled) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor_ < 0) throw Error(concat("cannot make a signalfd: ", std::strerror(errno)));
    previous_pipe_ = std::signal(SIGPIPE, SIG_IGN);
  }
  ~SignalQueue() {
    ::close(descriptor_);
    std::signal(SIGPIPE, previous_pipe_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int descriptor() const { return descriptor_; }
  int take() const {  // 0: none
    signalfd_siginfo info{};
    return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
  }

 private:
  sigset_t before_{};
  int descriptor_ = -1;
  void (*previous_pipe_)(int) = SIG_DFL;
};

class Supervisor {
 public:
  Supervisor(int mpirun, Relay& out, Relay& err) : mpirun_(mpirun), out_(out), err_(err) {}

  int run(const SignalQueue& signals) {
    for (int status = 0;;) {
      const pid_t ended = ::waitpid(mpirun_, &status, WNOHANG);
      pump();
      if (ended == mpirun_)
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      std::array<pollfd, 5> ready{{{signals.descriptor(), POLLIN, 0},
                                   {out_.reader(), POLLIN, 0},
                                   {err_.reader(), POLLIN, 0},
                                   {out_.destination(), 0, 0},
                                   {err_.destination(), 0, 0}}};
      ::poll(ready.data(), ready.size(), -1);
      if ((ready[3].revents & (POLLERR | POLLHUP)) != 0) out_.give_up();
      if ((ready[4].revents & (POLLERR | POLLHUP)) != 0) err_.give_up();
      for (int signal; (signal = signals.take()) != 0;) handle(signal);
    }
  }

 private:
  void pump() {
    out_.pump();
    err_.pump();
    if (out_.broken()) stop("standard output was closed");
    if (err_.broken()) stop("standard error was closed");
  }

  void handle(int signal) {
    if (signal == SIGUSR1 || signal == SIGUSR2) ::kill(mpirun_, signal);
    if (signal == SIGHUP) stop("SIGHUP");
    if (signal != SIGINT && signal != SIGTERM) return;
    if (stopping_) ::kill(mpirun_, SIGTERM);
    stop(signal == SIGINT ? "SIGINT" : "SIGTERM");
  }

  void stop(const char* why) {
    if (stopping_) return;
    stopping_ = true;
    if (!err_.broken())
      log_info(
          why,
          ": saving and stopping after this step; SIGINT or SIGTERM now ends the ranks at once");
    ::kill(mpirun_, SIGUSR2);
  }

  int mpirun_;
  Relay &out_, &err_;
  bool stopping_ = false;
};

}  // namespace

std::optional<int> run_supervised_ranks(int ranks, int argc, char** argv) {
  if (!must_start_ranks(ranks)) return std::nullopt;
  RankCommand command{mpirun_command(this_host(), ranks, own_command(argc, argv)), {}};
  hand_down_console(console_target());
  // A pipe must not get the number of an output that was closed from the start.
  for (int null = 0; null >= 0 && null <= 2;) null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const SignalQueue signals;
  Relay out(1), err(2);
  const int mpirun = start_process(command, out.writer(), err.writer());
  out.close_writer();
  err.close_writer();
  return Supervisor(mpirun, out, err).run(signals);
}

}  // namespace trireme
