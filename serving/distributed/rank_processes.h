// The processes of a group of ranks, as the one that leads them sees them: started together, ended
// together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "parallel/launch.h"

namespace trireme {

class RankProcesses {
 public:
  // They are killed when the thread that calls this ends, whatever ends it.
  explicit RankProcesses(const std::vector<RankCommand>& commands);
  ~RankProcesses();  // kill()
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  const std::vector<int>& numbers() const {
    return running_;
  }  // of those that have not been seen to end
  // Of the first that was found to have ended: "process 7 ended with exit code 2"; empty: all run.
  std::string ended();
  // Its exit code; -1: a signal ended it, or all run.
  int exit_code() const { return exit_code_; }
  // Waits until all have ended; false: some run on after that time.
  bool wait(std::chrono::milliseconds limit);
  void kill();  // those that run, and waits for their ends

 private:
  void look();

  std::vector<int> running_;
  std::string ended_;
  int exit_code_ = -1;
};

}  // namespace trireme
