#include "serving/distributed/rank_processes.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kLook{5};

}  // namespace

RankProcesses::RankProcesses(const std::vector<RankCommand>& commands) {
  try {
    for (const RankCommand& command : commands) running_.push_back(start_process(command));
  } catch (...) {
    kill();
    throw;
  }
}

RankProcesses::~RankProcesses() { kill(); }

void RankProcesses::look() {
  std::erase_if(running_, [this](int process) {
    int status = 0;
    if (waitpid(process, &status, WNOHANG) == 0) return false;
    if (!ended_.empty()) return true;
    if (WIFEXITED(status)) exit_code_ = WEXITSTATUS(status);
    ended_ = WIFEXITED(status)
                 ? concat("process ", process, " ended with exit code ", exit_code_)
                 : concat("process ", process, " was ended by signal ", WTERMSIG(status));
    return true;
  });
}

std::string RankProcesses::ended() {
  look();
  return ended_;
}

bool RankProcesses::wait(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (look(); !running_.empty(); look()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void RankProcesses::kill() {
  // Each process leads its own process group, which includes its local children.
  for (const int process : running_) ::kill(-process, SIGKILL);
  for (const int process : running_) ::kill(process, SIGKILL);
  for (const int process : running_) waitpid(process, nullptr, 0);
  running_.clear();
}

}  // namespace trireme
