// Thread pool for the slow work of requests (parsing JSON, tokenizing, writing large responses).
// API keys are served round robin. Waiting work is limited in total and per key, and can be
// withdrawn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/fair_queue.h"

namespace trireme {

struct WorkLimits {
  int64_t jobs = 1024;  // waiting
  int64_t bytes =
      int64_t{64} << 20;  // bodies of waiting jobs; while none waits, any size is accepted
  // Bytes. Jobs with larger bodies run on at most all threads but one, so that small jobs do not
  // wait for large ones. A single thread runs both.
  int64_t large = int64_t{256} << 10;
};

class WorkQueue {
 public:
  struct Ticket {
    std::string tenant = {};
    uint64_t number = 0;  // 0: refused
    explicit operator bool() const { return number != 0; }
  };

  WorkQueue(int threads, const WorkLimits& limits);
  ~WorkQueue();  // stop()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Queues work. bytes: size of the request's body that waits with it. The ticket has number 0 if
  // the work is refused: the queue is full, the tenant's waiting jobs use up its share
  // (tenant_share, engine/core/fair_queue.h), or the queue has stopped. Exceptions of `work` are
  // logged.
  Ticket push(const std::string& tenant, int64_t bytes, std::function<void()> work);
  // Removes waiting work. False: the work has begun, has ended, or was dropped by stop().
  bool withdraw(const Ticket& ticket);
  // Waits for running work; drops waiting work.
  void stop();
  int64_t waiting() const;  // number of jobs

 private:
  struct Job {
    std::string tenant;
    int64_t bytes = 0;
    std::function<void()> work;
  };
  struct Held {
    int64_t jobs = 0, bytes = 0;
  };
  void run();
  bool take(Job& job);
  bool is_full(const std::string& tenant, int64_t bytes) const;
  void count(const Job& job, int64_t sign);
  bool is_large(const Job& job) const { return job.bytes > limits_.large; }

  const WorkLimits limits_;
  const int64_t max_large_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  FairQueue<Job> jobs_;
  std::map<std::string, Held> of_tenant_;  // waiting, in jobs_
  int64_t bytes_ = 0;                      // waiting, in jobs_
  int64_t large_ = 0;                      // running
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
