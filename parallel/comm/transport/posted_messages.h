// Queue and liveness checks of a rank's posted messages, for its transport.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "parallel/comm/transport/transport.h"

namespace trireme {

using PostedPointer = std::shared_ptr<PostedMessage>;

// Queue from the threads that post messages to the one inside the transport.
class PostedQueue {
 public:
  void add(PostedPointer message);    // any thread
  std::vector<PostedPointer> take();  // in the order of add()
  bool empty() const { return count_.load() == 0; }

 private:
  std::mutex mutex_;
  std::vector<PostedPointer> messages_;
  std::atomic<int> count_{0};
};

// Liveness checks of the peers of posted messages, every 20 milliseconds.
class PostedWatch {
 public:
  // Checks the peer of one message. Returns null, or the error of a loss, which ends every posted
  // message.
  std::exception_ptr look(Liveness& liveness, PostedMessage& message);
  bool due();  // true once per interval: check all messages now

 private:
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace trireme
