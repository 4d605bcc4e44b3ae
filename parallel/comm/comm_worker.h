// Runs a rank's operations one at a time, in the order in which they were started.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "parallel/comm/communicator.h"

namespace trireme {

struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  double seconds = 0;
};

// This is also the rule for MPI_THREAD_SERIALIZED: whoever executes an operation, the caller's
// thread or the worker's, is the only one inside the transport.
class CommWorker {
 public:
  CommWorker() = default;
  ~CommWorker();  // finishes what was started
  CommWorker(const CommWorker&) = delete;
  CommWorker& operator=(const CommWorker&) = delete;

  // Runs f after everything started before: here when nothing is under way, else in the thread.
  void run(const std::function<void()>& f);
  Work start(std::function<void()> f);
  void set_cores(int first, int count);  // before the first start()

 private:
  struct Task {
    std::function<void()> f;
    std::shared_ptr<Work::State> state;
  };
  void loop();
  static void execute(const Task& task);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool busy_ = false;  // somebody executes an operation
  bool stop_ = false;
  int first_core_ = 0, core_count_ = 0;  // 0: wherever the process may run
  std::thread thread_;
};

}  // namespace trireme
