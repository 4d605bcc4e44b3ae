// Monitor of MPI_Init, which waits silently and without limit for a rank that never calls it
// (another program, a stopped or hung process).
//
// After ten seconds the lowest rank that waits on this machine logs which ranks of the machine have
// arrived. After comm.timeout, at least thirty seconds, every waiting rank ends with
// ExitCode::kLostRank, whatever MPI is doing.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "parallel/comm/launcher.h"

namespace trireme {

class InitWatch {
 public:
  // Lives from just before MPI_Init to just after it. announce: prints one line before the process
  // ends.
  InitWatch(const LauncherInfo& launcher, double timeout_s,
            std::function<void(const std::string&)> announce);
  ~InitWatch();
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  void loop();
  bool wait(double seconds);  // false: MPI_Init has returned
  std::string ranks_here(bool& lowest) const;

  LauncherInfo launcher_;
  std::string job_;  // of the launcher; empty: unknown, so no rank can be seen
  double timeout_s_;
  std::function<void(const std::string&)> announce_;
  int presence_ = -1;  // socket whose name shows that this rank has arrived
  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::thread thread_;
};

}  // namespace trireme
