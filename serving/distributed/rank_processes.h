// Processes of a group of ranks, owned by the process that leads them. They are started and killed
// together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "parallel/launch.h"

namespace trireme {

class RankProcesses {
 public:
  // Starts the processes. If one cannot be started, kills the others and throws. The kernel kills
  // them when the calling thread ends, for any reason.
  explicit RankProcesses(const std::vector<RankCommand>& commands);
  ~RankProcesses();  // kill()
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Process ids of those that are not known to have ended.
  const std::vector<int>& pids() const { return running_; }
  // Describes the first process found to have ended: "process 7 ended with exit code 2". Empty:
  // none has ended, other than by kill().
  std::string ended();
  // Exit code of the process that ended() describes; -1: a signal ended it, or there is none.
  int exit_code() const { return exit_code_; }
  // Waits until all processes have ended. False: some still run after `limit`.
  bool wait(std::chrono::milliseconds limit);
  // Kills the remaining processes, their local children included, and waits until they have ended.
  void kill();

 private:
  void look();

  std::vector<int> running_;
  std::string ended_;
  int exit_code_ = -1;
};

}  // namespace trireme
