// Time that the main stream waited for other streams, from a pair of events around each wait.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

class WaitTimes {
 public:
  // Makes the main stream wait for `event`, between two timing events; without them once count() is
  // 16384.
  void wait(Context& gpu, const Event& event);
  int64_t count() const { return static_cast<int64_t>(used_); }  // waits not taken so far
  // Seconds of the first `count` waits, which the main stream must have completed.
  double take_seconds(int64_t count);

 private:
  struct Pair {
    Event before, after;
  };
  std::vector<Pair> pairs_;  // reused
  size_t used_ = 0;
};

}  // namespace trireme::cuda
