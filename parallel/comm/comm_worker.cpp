#include "parallel/comm/comm_worker.h"

#include <sched.h>

#include <algorithm>

#include "engine/core/cpu.h"
#include "engine/core/thread_name.h"

namespace trireme {
namespace {

using std::chrono::microseconds;

// Polls of a message before its waiter starts to sleep between them.
constexpr int kYields = 100;
// Naps up to this long indicate a transport that needs polling.
constexpr microseconds kPolled{100};
// Nap while another thread is inside the transport and moves messages itself.
constexpr microseconds kOthersNap{200};
// Between polls while no thread waits: long enough not to take a core from computing.
constexpr microseconds kIdleNap{1000};

}  // namespace

void Work::wait() const {
  if (state_ == nullptr) return;
  if (state_->driver != nullptr) state_->driver->drive(*state_);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
  lock.unlock();
  if (state_->device) state_->device->wait();
}

bool Work::done() const {
  if (state_ == nullptr) return true;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) return false;
  }
  return !state_->device || state_->device->done();
}

double Work::seconds() const {
  if (state_ == nullptr) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->seconds;
}

void Work::State::finish(const std::exception_ptr& result, double spent) {
  {
    const std::lock_guard lock(mutex);
    seconds = spent;
    error = result;
    done = true;
  }
  changed.notify_all();
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
  task.state->finish(error, spent.count());
}

void CommWorker::run(const std::function<void()>& f) {
  {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait(lock, [this] { return !polling_; });
    --waiting_;
    if (busy_ || !queue_.empty()) {
      lock.unlock();
      start(f).wait();
      return;
    }
    busy_ = true;
  }
  // An operation may be started meanwhile; the worker thread takes it after this one.
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

Work CommWorker::queued(std::shared_ptr<DevicePart> device) {
  Work work;
  work.state_ = std::make_shared<Work::State>();
  work.state_->device = std::move(device);
  work.state_->done = true;
  return work;
}

Work CommWorker::start(std::function<void()> f, std::shared_ptr<DevicePart> device) {
  Work work;
  work.state_ = std::make_shared<Work::State>();
  work.state_->device = std::move(device);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(f), work.state_});
    ensure_thread();
  }
  changed_.notify_all();
  return work;
}

Work CommWorker::post(const OpInfo& op, const std::function<void(Done)>& hand_over,
                      std::shared_ptr<DevicePart> device) {
  Work work;
  work.state_ = std::make_shared<Work::State>();
  work.state_->device = std::move(device);
  work.state_->driver = this;
  work.state_->group = *op.group;
  work.state_->op = op;
  work.state_->op.group = &work.state_->group;
  const auto begin = std::chrono::steady_clock::now();
  hand_over([state = work.state_, begin](const std::exception_ptr& error) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    state->finish(error, spent.count());
  });
  std::unique_lock lock(mutex_);
  ++posts_;
  pending_ = true;
  ensure_thread();
  if (!busy_ && !polling_) poll(lock);  // so that it is sent at once
  lock.unlock();
  changed_.notify_all();
  return work;
}

microseconds CommWorker::poll(std::unique_lock<std::mutex>& lock) {
  const int64_t seen = posts_;
  polling_ = true;
  lock.unlock();
  const microseconds nap = liveness_->background();
  lock.lock();
  polling_ = false;
  if (nap.count() == 0 && seen == posts_) pending_ = false;
  if (waiting_ > 0 || !queue_.empty()) changed_.notify_all();
  return nap;
}

void CommWorker::drive(Work::State& state) {
  liveness_->await(&state.op);
  move_on(state);
  liveness_->await(nullptr);
}

void CommWorker::move_on(Work::State& state) {
  for (int round = 0;; ++round) {
    microseconds nap = kOthersNap;
    {
      std::unique_lock lock(mutex_);
      if (!busy_ && !polling_) nap = std::max(poll(lock), microseconds(1));
    }
    std::unique_lock lock(state.mutex);
    if (state.done) return;
    // A waiter that will be notified sleeps at once: with more threads than cores, a sleeper gets a
    // core sooner than a thread that has been yielding.
    if (round < kYields && nap <= kPolled) {
      lock.unlock();
      sched_yield();
    } else {
      state.changed.wait_for(lock, nap, [&] { return state.done; });
    }
  }
}

void CommWorker::set_cores(int first, int count) {
  const std::lock_guard lock(mutex_);
  first_core_ = first;
  core_count_ = count;
}

void CommWorker::ensure_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void CommWorker::loop() {
  name_thread("comm");
  std::unique_lock lock(mutex_);
  if (core_count_ > 0) allow_cores(first_core_, core_count_);
  const auto due = [this] {
    return (!busy_ && !polling_ && !queue_.empty()) || (stop_ && queue_.empty());
  };
  microseconds nap = kIdleNap;
  for (;;) {
    if (pending_ && !stop_) {
      if (!changed_.wait_for(lock, nap, due)) {
        if (!busy_ && !polling_ && pending_) nap = std::max(kIdleNap, poll(lock));
        continue;
      }
    } else {
      changed_.wait(lock, [&] { return due() || (pending_ && !stop_); });
      nap = kIdleNap;
      if (!due()) continue;
    }
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
