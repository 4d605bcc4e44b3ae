#include "serving/http/work_queue.h"

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"

namespace trireme {

WorkQueue::WorkQueue(int threads, const WorkLimits& limits) : limits_(limits) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this, i] {
      name_thread("worker", static_cast<size_t>(i));
      run();
    });
}

WorkQueue::~WorkQueue() { stop(); }

WorkQueue::Ticket WorkQueue::push(int64_t bytes, std::function<void()> work) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    const bool full =
        std::ssize(jobs_) >= limits_.jobs || (bytes_ > 0 && bytes > limits_.bytes - bytes_);
    if (full || stop_) return 0;
    jobs_.emplace(last_ + 1, Job{bytes, std::move(work)});
    ticket = ++last_;
    bytes_ += bytes;
  }
  wake_.notify_one();
  return ticket;
}

bool WorkQueue::withdraw(Ticket ticket) {
  std::map<Ticket, Job>::node_type gone;  // what it holds is freed without the lock
  const std::lock_guard lock(mutex_);
  gone = jobs_.extract(ticket);
  if (gone.empty()) return false;
  bytes_ -= gone.mapped().bytes;
  return true;
}

bool WorkQueue::take(Job& job) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  if (stop_) return false;
  job = std::move(jobs_.begin()->second);
  jobs_.erase(jobs_.begin());
  bytes_ -= job.bytes;
  return true;
}

void WorkQueue::run() {
  for (Job job; take(job); job = {}) {
    try {
      job.work();
    } catch (const std::exception& error) {
      log_error("the work of a request: ", error.what());
    }
  }
}

void WorkQueue::stop() {
  std::map<Ticket, Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(jobs_);
    bytes_ = 0;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t WorkQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(jobs_);
}

}  // namespace trireme
