// The work of requests that takes time (reading their JSON, tokenizing, writing large answers), on a few threads: first
// come, first served, and no more of it waits than the bounds say. What waits can be taken back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme {

struct WorkLimits {
  int64_t jobs = 1024;
  int64_t bytes = int64_t{64} << 20;  // of bodies; one job is always taken
};

class WorkQueue {
 public:
  using Ticket = uint64_t;

  WorkQueue(int threads, const WorkLimits& limits);
  ~WorkQueue();  // stop()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // 0: the queue is full, or stopped, and the work will not be done. What it throws is lost.
  Ticket push(int64_t bytes, std::function<void()> work);
  // It is not done any more, if it has not begun; says whether.
  bool withdraw(Ticket ticket);
  // Waits for what has begun; what waits is dropped.
  void stop();
  int64_t waiting() const;

 private:
  struct Job {
    int64_t bytes = 0;
    std::function<void()> work;
  };
  void run();
  bool take(Job& job);

  const WorkLimits limits_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::map<Ticket, Job> jobs_;  // by arrival
  int64_t bytes_ = 0;           // of jobs_
  Ticket last_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
