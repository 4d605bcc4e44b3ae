#include "parallel/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "engine/core/error.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

constexpr int kExecStatus = 4;  // pipe that reports to the parent why execve() failed

[[noreturn]] void fail_start(const std::string& program, int error_number) {
  const bool full = error_number == EAGAIN;
  throw Error(concat("cannot start ", program, ": ", std::strerror(error_number),
                     full ? "; the user's processes and threads are at their limit: raise it "
                            "(ulimit -u, or the pids limit of the container)"
                          : ""));
}

// Null-terminated array for execve().
std::vector<char*> child_pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// Sets up the child's descriptors: 0 to 2, the listener, and the status pipe, closed by execve().
void arrange_descriptors(const ChildCommand& given, int status) {
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  if (given.out != 1) dup2(given.out, 1);
  if (given.err != 2) dup2(given.err, 2);
  const int kept = fcntl(status, F_DUPFD_CLOEXEC, kExecStatus + 1);  // may have been the listener's
  // dup2() of a descriptor to itself keeps close-on-exec set.
  if (given.listener == kInheritedListener) fcntl(given.listener, F_SETFD, 0);
  if (given.listener >= 0) dup2(given.listener, kInheritedListener);
  if (kept >= 0) dup3(kept, kExecStatus, O_CLOEXEC);
  // The child must not keep sockets of a server's clients open.
  if (given.listener < 0) close(kInheritedListener);
  close_range(kept >= 0 ? kExecStatus + 1 : kExecStatus, ~0u, 0);
}

// Runs in the child after fork() from a multi-threaded program: no allocation and no locks.
[[noreturn]] void become(int parent, const ChildCommand& given, int status,
                         const std::vector<char*>& words, const std::vector<char*>& variables) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl()
  setpgid(0, 0);
  arrange_descriptors(given, status);
  sigset_t blocked;
  sigemptyset(&blocked);
  if (given.blocks_requests)
    for (const int signal : {SIGUSR1, SIGUSR2}) sigaddset(&blocked, signal);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  // Signals ignored by the parent have their default action in the child.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  execve(words[0], words.data(), variables.data());
  const int error_number = errno;
  [[maybe_unused]] const ssize_t written = write(kExecStatus, &error_number, sizeof error_number);
  _exit(127);
}

// errno of the child's execve(); 0: the program runs.
int read_exec_status(int descriptor) {
  int error_number = 0;
  ssize_t got = 0;
  do got = read(descriptor, &error_number, sizeof error_number);
  while (got < 0 && errno == EINTR);
  return got == ssize_t{sizeof error_number} ? error_number : 0;
}

}  // namespace

int start_child(const ChildCommand& command) {
  std::vector<std::string> words = command.words;
  std::vector<std::string> variables = environment_with(command.variables);
  const std::vector<char*> arguments = child_pointers(words);
  const std::vector<char*> environment = child_pointers(variables);
  std::array<int, 2> status{};
  if (pipe2(status.data(), O_CLOEXEC) != 0) fail_start(words[0], errno);
  const int parent = getpid();
  const int child = fork();
  if (child == 0) become(parent, command, status[1], arguments, environment);
  const int fork_error = errno;
  close(status[1]);
  const int exec_error = child < 0 ? fork_error : read_exec_status(status[0]);
  close(status[0]);
  if (child >= 0 && exec_error != 0) waitpid(child, nullptr, 0);
  if (exec_error != 0) fail_start(words[0], exec_error);
  return child;
}

void replace_process(std::vector<std::string> words) {
  const std::vector<char*> arguments = child_pointers(words);
  execv(arguments[0], arguments.data());
  fail_start(words[0], errno);
}

}  // namespace trireme
