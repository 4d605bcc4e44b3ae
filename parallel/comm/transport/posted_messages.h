// The messages a rank has posted, on their way into its transport.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "parallel/comm/transport/transport.h"

namespace trireme {

using PostedPointer = std::shared_ptr<PostedMessage>;

// Hands messages from the threads that post them to the one inside the transport.
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

// Looks after the peers of posted messages, at most every few milliseconds.
class PostedWatch {
 public:
  // The error of a loss by which every posted message ends, or null.
  std::exception_ptr look(Liveness& liveness, PostedMessage& message);
  bool due();  // time for another look, of all messages

 private:
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace trireme
