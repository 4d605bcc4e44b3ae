// Time that the main stream waited for other streams, from a pair of events around each wait.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

class WaitTimes {
 public:
  // Makes the main stream wait for `event`, and times the wait by an event before and one after it.
  // While count() is 16384, waits are not timed.
  void wait(Context& gpu, const Event& event);
  int64_t count() const { return static_cast<int64_t>(used_); }  // timed waits not taken yet
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
