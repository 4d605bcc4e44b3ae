#include "parallel/supervised_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "engine/observe/log.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/launch.h"

namespace trireme {
namespace {

constexpr std::array kHandled{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

// Relay of one output of mpirun to the same output of this process.
class Relay {
 public:
  explicit Relay(int to) : to_(to) {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw Error(concat("cannot create a pipe for mpirun: ", std::strerror(errno)));
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
  // Descriptor to poll for room and for errors (the reader has left). -1: already broken.
  int destination() const { return broken_ ? -1 : to_; }
  short awaited() const { return pending_.empty() ? 0 : POLLOUT; }
  bool empty() const { return empty_; }  // nothing was received
  void give_up() { broken_ = true; }
  bool broken() const { return broken_; }

  // Relays what is available, as far as there is room. An unread output must block neither signals
  // nor mpirun, whose last writes wait for room: pending output beyond kMaxPending is dropped.
  void pump() {
    write_with_room(0);
    std::array<char, 1 << 16> bytes;
    for (int reads = 0; open_ && reads < kMaxReads; ++reads) {
      const ssize_t got = ::read(ends_[0], bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;  // nothing available now
      if (got == 0) open_ = false;
      if (got > 0) empty_ = false;
      keep({bytes.data(), static_cast<size_t>(got)});
      write_with_room(0);
    }
  }

  // Relays the rest after mpirun has ended. Drops what is not read for some seconds.
  void finish() {
    do pump();
    while (write_with_room(kPatienceMs) && open_ && has_more());
  }

 private:
  static constexpr size_t kMaxPending = 1 << 18;
  static constexpr int kMaxReads = 16;  // before signals are polled again
  static constexpr int kPatienceMs = 3000;

  // Drops the oldest lines: the last ones show how the run ended.
  void keep(std::string_view bytes) {
    pending_ += bytes;
    if (pending_.size() <= kMaxPending) return;
    const size_t line = pending_.find('\n', pending_.size() - kMaxPending);
    const size_t cut = line == std::string::npos ? pending_.size() - kMaxPending : line + 1;
    dropped_ += cut;
    pending_.erase(0, cut);
  }

  bool has_more() const {
    pollfd more{ends_[0], POLLIN, 0};
    return ::poll(&more, 1, 0) > 0 && (more.revents & POLLIN) != 0;
  }

  // False if some output is left after that long without room.
  bool write_with_room(int patience_ms) {
    size_t done = 0;
    while (done < pending_.size() && !broken_) {
      pollfd room{to_, POLLOUT, 0};
      const int ready = ::poll(&room, 1, patience_ms);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) break;
      if (dropped_ > 0)
        pending_.insert(done, concat("\n[", std::exchange(dropped_, 0),
                                     " bytes of output were dropped because nobody read them]\n"));
      // A pipe with room takes PIPE_BUF bytes without blocking.
      const size_t size = std::min<size_t>(pending_.size() - done, PIPE_BUF);
      const ssize_t written = ::write(to_, pending_.data() + done, size);
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written < 0) give_up();
      if (written > 0) done += static_cast<size_t>(written);
    }
    pending_.erase(0, broken_ ? pending_.size() : done);
    return pending_.empty();
  }

  std::string pending_;
  size_t dropped_ = 0;  // bytes before pending_, not reported yet
  int to_;
  std::array<int, 2> ends_{-1, -1};
  bool open_ = true, broken_ = false, empty_ = true;
};

// Signals as a descriptor to poll: blocked for the life of this object; SIGPIPE is ignored.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    sigemptyset(&set);
    // A signal that is ignored (nohup, a script's background job) stays ignored; blocking would
    // queue it.
    for (const int signal : kHandled) {
      struct sigaction now {};
      sigaction(signal, nullptr, &now);
      if (now.sa_handler != SIG_IGN || signal == SIGCHLD) sigaddset(&set, signal);
    }
    std::signal(SIGCHLD, SIG_DFL);  // with SIG_IGN, children would leave no status
    sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor_ < 0) throw Error(concat("cannot create a signalfd: ", std::strerror(errno)));
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
      if (ended == mpirun_) {
        out_.finish();
        err_.finish();
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
      std::array<pollfd, 5> ready{{{signals.descriptor(), POLLIN, 0},
                                   {out_.reader(), POLLIN, 0},
                                   {err_.reader(), POLLIN, 0},
                                   {out_.destination(), out_.awaited(), 0},
                                   {err_.destination(), err_.awaited(), 0}}};
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
    ::kill(mpirun_, SIGUSR2);
    // A log line without a reader must hold up neither the ranks nor the next signal.
    pollfd room{2, POLLOUT, 0};
    if (!err_.broken() && ::poll(&room, 1, 0) > 0 && (room.revents & POLLOUT) != 0)
      log_info(
          why,
          ": saving and stopping after this step; SIGINT or SIGTERM now ends the ranks at once");
  }

  int mpirun_;
  Relay &out_, &err_;
  bool stopping_ = false;
};

// An output that was closed at start has no reader and is no reason to stop
// (open_standard_descriptors()).
void drop_outputs_closed_from_the_start() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int output : {1, 2})
    if ((::fcntl(output, F_GETFL) & O_ACCMODE) == O_RDONLY) ::dup2(null, output);
  ::close(null);
}

}  // namespace

std::optional<int> run_supervised_ranks(int ranks, int argc, char** argv) {
  if (!must_start_ranks(ranks)) return std::nullopt;
  RankCommand command{mpirun_command(this_host(), ranks, own_command(argc, argv)), {}};
  prepare_for_mpirun(command.words[0], ranks);
  drop_outputs_closed_from_the_start();
  const SignalQueue signals;
  Relay out(1), err(2);
  const int mpirun = start_process(command, out.writer(), err.writer());
  out.close_writer();
  err.close_writer();
  const int code = Supervisor(mpirun, out, err).run(signals);
  if (code != 0 && out.empty() && err.empty())
    report_failure(concat("--ranks ", ranks, ": ", command.words[0], " ended with ",
                          code > 128 ? "signal " : "exit code ", code > 128 ? code - 128 : code,
                          " and printed nothing; try it alone: ", command.words[0],
                          " -n 1 hostname"));
  return code;
}

}  // namespace trireme
