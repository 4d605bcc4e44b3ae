#include "parallel/comm/transport/posted_messages.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(20);

}  // namespace

void PostedQueue::add(PostedPointer message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  count_.store(static_cast<int>(messages_.size()));
}

std::vector<PostedPointer> PostedQueue::take() {
  if (empty()) return {};
  const std::lock_guard lock(mutex_);
  count_.store(0);
  return std::exchange(messages_, {});
}

bool PostedWatch::due() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLookInterval) return false;
  looked_ = now;
  return true;
}

std::exception_ptr PostedWatch::look(Liveness& liveness, PostedMessage& message) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> step = now - std::exchange(message.looked, now);
  if (!liveness.held()) message.waited += std::min(step.count(), kLongestStep);
  try {
    liveness.check(message.op, message.peer, message.waited);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace trireme
