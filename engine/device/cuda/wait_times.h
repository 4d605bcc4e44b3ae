// How long the main stream stood waiting for other streams: pairs of events around each wait, read
// later.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

class WaitTimes {
 public:
  // The main stream waits for `event`, between two events that tell the time.
  void wait(Context& gpu, const Event& event);
  int64_t count() const { return static_cast<int64_t>(used_); }  // not taken so far
  // Seconds of the first `count` of them, which the main stream must be through with.
  double take_seconds(int64_t count);

 private:
  struct Pair {
    Event before, after;
  };
  std::vector<Pair> pairs_;  // used again and again
  size_t used_ = 0;
};

}  // namespace trireme::cuda
