#include "engine/io/write_behind.h"

#include <utility>

namespace trireme {

WriteBehind::WriteBehind(int blocks)
    : free_(static_cast<size_t>(blocks)), thread_([this] { work(); }) {}

WriteBehind::~WriteBehind() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    filled_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void WriteBehind::rethrow() {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::span<std::byte> WriteBehind::block(int64_t bytes) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !free_.empty() || error_ != nullptr; });
    rethrow();
    out_ = std::move(free_.back());
    free_.pop_back();
  }
  out_bytes_ = static_cast<size_t>(bytes);
  if (out_.size() < out_bytes_) out_.resize(out_bytes_);  // never shrinks: pages are touched once
  return std::span(out_).first(out_bytes_);
}

void WriteBehind::push(Use use) {
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    filled_.push_back({std::move(out_), out_bytes_, std::move(use)});
  }
  changed_.notify_all();
}

void WriteBehind::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (filled_.empty() && !busy_) || error_ != nullptr; });
  rethrow();
}

void WriteBehind::abandon() {
  std::unique_lock lock(mutex_);
  filled_.clear();
  changed_.wait(lock, [this] { return !busy_; });
}

void WriteBehind::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || (!filled_.empty() && error_ == nullptr); });
    if (ends_) return;
    Filled now = std::move(filled_.front());
    filled_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      now.use(std::span(now.memory).first(now.bytes));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    error_ = error;
    free_.push_back(std::move(now.memory));
    changed_.notify_all();
  }
}

}  // namespace trireme
