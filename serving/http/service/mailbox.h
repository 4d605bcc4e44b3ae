// Where other threads put what an answer waits for (PendingReply), and wake it.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "engine/observe/log.h"

namespace trireme {

// Any thread may call everything. What is called with the contents has them alone, and calls
// nothing of the mailbox.
template <class Contents>
class Mailbox {
 public:
  template <class... Args>
  explicit Mailbox(Args&&... args) : contents_{std::forward<Args>(args)...} {}

  // Before, and once it is closed, nothing is put.
  void open(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void close() { open({}); }
  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(wake_);
  }

  // put(contents) says whether the reader is to be woken. Nothing is thrown, as the engine's thread
  // wants it: what is lost for want of memory makes a failure().
  template <class Put>
  void put(Put&& put) noexcept {
    const std::lock_guard lock(mutex_);
    if (!wake_) return;
    try {
      if (put(contents_)) wake_();
    } catch (const std::exception& error) {
      lose(error);
    }
  }
  // What look(contents) returns.
  template <class Look>
  auto look(Look&& look) {
    const std::lock_guard lock(mutex_);
    return look(contents_);
  }
  // Empty: nothing is lost.
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return lost_ ? "the server has not enough memory" : "";
  }

 private:
  void lose(const std::exception& error) noexcept {
    lost_ = true;
    try {
      wake_();
      log_error("a message for a response was lost: ", error.what());
    } catch (...) {  // the reader finds it when it looks next
    }
  }

  mutable std::mutex mutex_;  // of all below
  Contents contents_;
  bool lost_ = false;
  std::function<void()> wake_;  // none: it is closed
};

}  // namespace trireme
