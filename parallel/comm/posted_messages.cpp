#include "parallel/comm/posted_messages.h"

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

std::exception_ptr PostedWatch::look(Liveness& liveness, const PostedMessage& message) {
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - message.start;
  try {
    liveness.check(message.op, message.peer, waited.count());
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace trireme
