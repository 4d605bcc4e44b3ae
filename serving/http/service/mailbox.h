// Mailbox through which other threads pass data to a ResponseProducer and wake it.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "engine/observe/log.h"

namespace trireme {

// Thread-safe. Callbacks that get the contents have exclusive access and must not call the mailbox.
template <class Contents>
class Mailbox {
 public:
  template <class... Args>
  explicit Mailbox(Args&&... args) : contents_{std::forward<Args>(args)...} {}

  // Puts are ignored before open() and after close().
  void open(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void close() { open({}); }
  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(wake_);
  }

  // put(contents) returns whether to wake the reader. Does not throw, as the engine's thread
  // requires: data lost for lack of memory is reported by failure().
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
  // Returns look(contents).
  template <class Look>
  auto look(Look&& look) {
    const std::lock_guard lock(mutex_);
    return look(contents_);
  }
  // Error of lost data; empty: none.
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
    } catch (...) {  // the reader checks failure() when it looks next
    }
  }

  mutable std::mutex mutex_;  // guards all below
  Contents contents_;
  bool lost_ = false;
  std::function<void()> wake_;  // empty: closed
};

}  // namespace trireme
