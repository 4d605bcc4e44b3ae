#include "parallel/comm/init_watch.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <utility>

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

constexpr double kSayAfterSeconds = 10, kMinTimeoutSeconds = 30;

// Names in the abstract namespace vanish with their process.
socklen_t presence_address(const std::string& job, int rank, sockaddr_un& address) {
  const std::string name = concat("trireme-mpi-init/", job, "/", rank);
  address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof address.sun_path - 1);
  std::copy_n(name.begin(), size, address.sun_path + 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

int open_presence_socket() { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

bool has_come(const std::string& job, int rank) {
  if (job.empty()) return false;
  const int probe = open_presence_socket();
  if (probe < 0) return false;
  sockaddr_un address{};
  const socklen_t size = presence_address(job, rank, address);
  const bool there = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  ::close(probe);
  return there;
}

}  // namespace

InitWatch::InitWatch(const LauncherInfo& launcher, double timeout_s,
                     std::function<void(const std::string&)> announce)
    : launcher_(launcher),
      job_(launcher_job()),
      timeout_s_(std::max(timeout_s, kMinTimeoutSeconds)),
      announce_(std::move(announce)) {
  if (launcher_.ranks <= 1) return;
  presence_ = open_presence_socket();
  sockaddr_un address{};
  const socklen_t size = presence_address(job_, launcher_.rank, address);
  const bool named =
      presence_ >= 0 && ::bind(presence_, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  // Only needed for a message: without its name this rank counts as not arrived.
  if (!named && presence_ >= 0) ::close(std::exchange(presence_, -1));
  thread_ = std::thread([this] { loop(); });
}

InitWatch::~InitWatch() {
  {
    const std::lock_guard lock(mutex_);
    returned_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (presence_ >= 0) ::close(presence_);
}

bool InitWatch::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [&] { return returned_; });
}

// "2 of 4 ranks called MPI_Init on this machine (0, 2)"
std::string InitWatch::ranks_here(bool& lowest) const {
  constexpr int kShown = 16;
  std::string list;
  int here = 0;
  lowest = true;
  for (int rank = 0; rank < launcher_.ranks; ++rank) {
    if (rank != launcher_.rank && !has_come(job_, rank)) continue;
    if (rank < launcher_.rank) lowest = false;
    if (here++ < kShown) list += concat(list.empty() ? "" : ", ", rank);
  }
  return concat(here, " of ", launcher_.ranks, " ranks called MPI_Init on this machine (", list,
                here > kShown ? ", ..." : "", ")");
}

void InitWatch::loop() {
  name_thread("mpi-init");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  if (!wait(kSayAfterSeconds)) return;
  bool lowest = false;
  std::string here = ranks_here(lowest);
  if (lowest)
    log_warning("waiting in MPI_Init for ", kSayAfterSeconds, " s: ", here,
                "; a rank that runs another program or is stopped never calls it; giving up after ",
                timeout_s_, " s (comm.timeout)");
  if (!wait(timeout_s_ - kSayAfterSeconds)) return;
  here = ranks_here(lowest);
  if (announce_)
    announce_(concat("waited ", timeout_s_, " s in MPI_Init (comm.timeout): ", here,
                     "; start the same program on every rank"));
  _exit(static_cast<int>(ExitCode::kLostRank));
}

}  // namespace trireme
