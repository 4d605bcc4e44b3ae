// Work of requests that takes time (parsing JSON, tokenizing, writing large responses), on a few
// threads. API keys are served in turn, and what waits is bounded for all together and for each
// key. Waiting work can be withdrawn.
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
  int64_t jobs = 1024;
  int64_t bytes = int64_t{64} << 20;  // of bodies; one job is always taken
  // Jobs of larger bodies take all threads but one at most: the others never wait for them alone.
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

  // Refused: the queue is full, or the tenant has its share of it (tenant_share), or it has
  // stopped. Exceptions of `work` are logged.
  Ticket push(const std::string& tenant, int64_t bytes, std::function<void()> work);
  // False: the work has begun.
  bool withdraw(const Ticket& ticket);
  // Waits for work that has begun; waiting work is dropped.
  void stop();
  int64_t waiting() const;

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
  const int64_t most_large_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  FairQueue<Job> jobs_;
  std::map<std::string, Held> of_tenant_;  // in jobs_
  int64_t bytes_ = 0;                      // in jobs_
  int64_t large_ = 0;                      // running
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
