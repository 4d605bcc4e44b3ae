#include "serving/http/server/work_queue.h"

#include <algorithm>

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"

namespace trireme {

WorkQueue::WorkQueue(int threads, const WorkLimits& limits)
    : limits_(limits), max_large_(std::max(threads - 1, 1)) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this, i] {
      name_thread("worker", static_cast<size_t>(i));
      run();
    });
}

WorkQueue::~WorkQueue() { stop(); }

// Requires the lock. A tenant without waiting work is refused only when the queue itself is full.
bool WorkQueue::is_full(const std::string& tenant, int64_t bytes) const {
  if (jobs_.size() >= limits_.jobs || (bytes_ > 0 && bytes > limits_.bytes - bytes_)) return true;
  const auto own = of_tenant_.find(tenant);
  if (own == of_tenant_.end()) return false;
  const auto active = std::ssize(of_tenant_);
  return own->second.jobs >= tenant_share(limits_.jobs, tenant, active) ||
         (own->second.bytes > 0 &&
          bytes > tenant_share(limits_.bytes, tenant, active) - own->second.bytes);
}

void WorkQueue::count(const Job& job, int64_t sign) {
  bytes_ += sign * job.bytes;
  const auto at = of_tenant_.try_emplace(job.tenant).first;
  at->second.jobs += sign;
  at->second.bytes += sign * job.bytes;
  if (at->second.jobs == 0) of_tenant_.erase(at);
}

WorkQueue::Ticket WorkQueue::push(const std::string& tenant, int64_t bytes,
                                  std::function<void()> work) {
  Ticket ticket{tenant};
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || is_full(tenant, bytes)) return {};
    Job job{tenant, bytes, std::move(work)};
    count(job, 1);
    ticket.number = jobs_.push(tenant, std::move(job));
  }
  wake_.notify_one();
  return ticket;
}

bool WorkQueue::withdraw(const Ticket& ticket) {
  std::optional<Job> gone;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  gone = jobs_.withdraw(ticket.tenant, ticket.number);
  if (!gone) return false;
  count(*gone, -1);
  return true;
}

bool WorkQueue::take(Job& job) {
  std::optional<Job> next;
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] {
    if (stop_) return true;
    next = jobs_.pop_if(
        [&](const std::string&, const Job& one) { return !is_large(one) || large_ < max_large_; });
    return next.has_value();
  });
  if (!next) return false;
  job = std::move(*next);
  count(job, -1);
  if (is_large(job)) ++large_;
  return true;
}

void WorkQueue::run() {
  for (Job job; take(job); job = {}) {
    try {
      job.work();
    } catch (const std::exception& error) {
      log_error("queued job of a request failed: ", error.what());
    }
    if (!is_large(job)) continue;
    {
      const std::lock_guard lock(mutex_);
      --large_;
    }
    wake_.notify_one();  // for a large job that was skipped
  }
}

void WorkQueue::stop() {
  FairQueue<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    std::swap(dropped, jobs_);
    of_tenant_.clear();
    bytes_ = 0;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t WorkQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

}  // namespace trireme
