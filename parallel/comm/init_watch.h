// Watch over MPI_Init, which waits without end and without a line for a rank that never calls it
// (another program, a stopped or hung process).
//
// After ten seconds the lowest rank of this machine says which ranks are there. After comm.timeout,
// at least thirty seconds, every rank that waits ends with ExitCode::kLostRank, whatever MPI is
// doing.
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
  // From just before MPI_Init to just after it. announce: prints one line, before the process ends.
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
  std::string job_;  // of the launcher; empty: not known, so nobody is seen
  double timeout_s_;
  std::function<void(const std::string&)> announce_;
  int presence_ = -1;  // a socket whose name says that this rank has come
  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::thread thread_;
};

}  // namespace trireme
