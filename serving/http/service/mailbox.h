// Mailbox through which other threads pass data to a ResponseProducer and wake it.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "engine/observe/log.h"

namespace trireme {

// Thread-safe. A callback that gets the contents has exclusive access to them. Callbacks and `wake`
// must not call the mailbox.
template <class Contents>
class Mailbox {
 public:
  template <class... Args>
  explicit Mailbox(Args&&... args) : contents_{std::forward<Args>(args)...} {}

  // Puts are ignored before open() and after close(), and call `wake` only between the two.
  void open(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void close() { open({}); }
  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(wake_);
  }

  // Calls put(contents), which returns whether to wake the reader. Does not throw, as the engine's
  // thread requires: if `put` throws, which it does only when memory has run out, the data is lost
  // and failure() reports that.
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
  // Error message if data was lost, else empty.
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return lost_ ? "the server is out of memory" : "";
  }

 private:
  void lose(const std::exception& error) noexcept {
    lost_ = true;
    try {
      wake_();
      log_error("data for a response was lost: ", error.what());
    } catch (...) {  // the reader checks failure() when it looks next
    }
  }

  mutable std::mutex mutex_;  // guards all below
  Contents contents_;
  bool lost_ = false;
  std::function<void()> wake_;  // empty: closed
};

}  // namespace trireme
