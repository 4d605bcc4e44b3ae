#include "parallel/comm/comm_worker.h"

#include <chrono>

#include "engine/core/cpu.h"

namespace trireme {

void Work::wait() const {
  if (state_ == nullptr) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::done() const {
  if (state_ == nullptr) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

double Work::seconds() const {
  if (state_ == nullptr) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->seconds;
}

CommWorker::~CommWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommWorker::execute(const Task& task) {
  const auto start = std::chrono::steady_clock::now();
  std::exception_ptr error;
  try {
    task.f();
  } catch (...) {
    error = std::current_exception();
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  {
    const std::lock_guard lock(task.state->mutex);
    task.state->seconds = spent.count();
    task.state->error = error;
    task.state->done = true;
  }
  task.state->changed.notify_all();
}

void CommWorker::run(const std::function<void()>& f) {
  {
    std::unique_lock lock(mutex_);
    if (busy_ || !queue_.empty()) {
      lock.unlock();
      start(f).wait();
      return;
    }
    busy_ = true;
  }
  // A started operation may queue up meanwhile; the thread takes it when this one is over.
  const auto release = [this] {
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  };
  try {
    f();
  } catch (...) {
    release();
    throw;
  }
  release();
}

Work CommWorker::start(std::function<void()> f) {
  Work work;
  work.state_ = std::make_shared<Work::State>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(f), work.state_});
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
  return work;
}

void CommWorker::set_cores(int first, int count) {
  const std::lock_guard lock(mutex_);
  first_core_ = first;
  core_count_ = count;
}

void CommWorker::loop() {
  std::unique_lock lock(mutex_);
  if (core_count_ > 0) allow_cores(first_core_, core_count_);
  for (;;) {
    changed_.wait(lock, [&] { return (!busy_ && !queue_.empty()) || (stop_ && queue_.empty()); });
    if (queue_.empty()) return;
    busy_ = true;
    const Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    execute(task);
    lock.lock();
    busy_ = false;
  }
}

}  // namespace trireme
