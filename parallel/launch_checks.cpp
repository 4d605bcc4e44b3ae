#include "parallel/launch_checks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/core/file_limit.h"
#include "parallel/child_process.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

using LaunchClock = std::chrono::steady_clock;

// Open descriptors of Open MPI 4.1's mpirun. Measured minimum for 2 to 16 ranks: 27, and 4 per
// rank; with fewer it hangs.
constexpr int64_t kMpirunDescriptors = 40, kDescriptorsPerRank = 5;
// Processes and threads of mpirun and the ranks, with one compute thread per rank; with fewer none
// of it starts, or it hangs.
constexpr int64_t kMpirunProcesses = 4, kProcessesPerRank = 5;
constexpr std::chrono::milliseconds kMpirunTimeout{10000};  // may be loaded over a network
constexpr size_t kMaxVersionText = 4096;
constexpr int kLooks = 50;  // of 10 ms, between the end of its output and its exit

constexpr const char* kOpenMpiFirst =
    "; put Open MPI's mpirun (Debian: openmpi-bin) first on the search path, or start the ranks "
    "with another launcher";

void require_processes(int64_t wanted, int ranks) {
  rlimit limit{};
  const auto needed = static_cast<rlim_t>(wanted);
  if (geteuid() == 0 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  setrlimit(RLIMIT_NPROC, &limit);
  if (limit.rlim_cur < needed)
    fail_input("--ranks ", ranks, " needs at least ", wanted, " processes and threads, and the ",
               "limit of this user is ", limit.rlim_cur, "; raise it: ulimit -u 4096");
}

// Creates a file in a new folder there, as mpirun does, to detect permissions, a read-only mount or
// a full disk. mpirun creates a missing folder inside its nearest existing parent.
void check_session_folder(const std::string& folder, int ranks) {
  std::filesystem::path there = folder;
  std::error_code ignored;
  while (there.has_relative_path() && !std::filesystem::exists(there, ignored))
    there = there.parent_path();
  std::string made = (there / "trireme-XXXXXX").string();
  int error_number = mkdtemp(made.data()) == nullptr ? errno : 0;
  if (error_number == 0) {
    const std::string file = made + "/probe";
    const std::array<char, 4096> page{};
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0 || write(descriptor, page.data(), page.size()) != ssize_t{page.size()})
      error_number = errno != 0 ? errno : ENOSPC;
    if (descriptor >= 0) close(descriptor);
    unlink(file.c_str());
    rmdir(made.c_str());
  }
  if (error_number != 0)
    fail_input("--ranks ", ranks, ": mpirun keeps the files of its session in ", folder,
               ", where no file can be created (", std::strerror(error_number),
               "); set TMPDIR to a writable folder");
}

// Both outputs of `PATH --version`, and its waitpid() status; -1: it did not end in time and was
// killed.
struct MpirunOutput {
  std::string text;
  int status = -1;
};

// Reads until the end of the output or until `end`.
void read_output(int descriptor, std::string& text, LaunchClock::time_point end) {
  std::array<char, 1024> piece;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - LaunchClock::now());
    pollfd ready{descriptor, POLLIN, 0};
    if (left.count() <= 0 || text.size() > kMaxVersionText) return;
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t got = read(descriptor, piece.data(), piece.size());
    if (got <= 0) return;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

MpirunOutput ask_version(const std::string& mpirun) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(concat("cannot create a pipe for mpirun: ", std::strerror(errno)));
  int child = 0;
  try {
    child = start_child({.words = {mpirun, "--version"}, .out = ends[1], .err = ends[1]});
  } catch (const Error& error) {
    close(ends[0]);
    close(ends[1]);
    fail_input(error.what(), kOpenMpiFirst);
  }
  close(ends[1]);
  MpirunOutput output;
  read_output(ends[0], output.text, LaunchClock::now() + kMpirunTimeout);
  close(ends[0]);
  bool ended = false;
  for (int looks = 0; looks < kLooks && !ended; ++looks) {
    siginfo_t info{};
    ended = waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == child;
    if (!ended) poll(nullptr, 0, 10);
  }
  // Kills leftovers in the child's process group, whose number is reserved until waitpid().
  kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (ended) output.status = status;
  return output;
}

void check_version(const std::string& mpirun, int ranks) {
  const MpirunOutput output = ask_version(mpirun);
  const std::string line = output.text.substr(0, std::min<size_t>(output.text.find('\n'), 200));
  const std::string head = concat("--ranks ", ranks, ": ", mpirun, " --version ");
  if (output.status == -1)
    fail_input(head, "did not end within ", kMpirunTimeout.count(), " ms", kOpenMpiFirst);
  if (WIFSIGNALED(output.status))
    fail_input(head, "was ended by signal ", WTERMSIG(output.status), kOpenMpiFirst);
  if (WEXITSTATUS(output.status) != 0)
    fail_input(head, "ended with exit code ", WEXITSTATUS(output.status), " (",
               line.empty() ? "no output" : line, ")", kOpenMpiFirst);
  if (output.text.find("Open MPI") == std::string::npos)
    fail_input(head, "does not name Open MPI (", line.empty() ? "no output" : line, ")",
               kOpenMpiFirst);
}

}  // namespace

void require_descriptors(int64_t wanted, const std::string& purpose) {
  raise_file_limit(wanted);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < static_cast<rlim_t>(wanted))
    fail_input(purpose, " needs ", wanted, " open files, and the limit is ", limit.rlim_cur,
               "; raise it: ulimit -n ", std::max<int64_t>(wanted, 1024));
}

void check_mpirun(const std::string& mpirun, int ranks) {
  require_processes(kMpirunProcesses + ranks * kProcessesPerRank, ranks);
  require_descriptors(kMpirunDescriptors + ranks * kDescriptorsPerRank, concat("--ranks ", ranks));
  check_session_folder(mpirun_session_folder(), ranks);
  check_version(mpirun, ranks);
}

}  // namespace trireme
