// How long the main stream stood waiting for other streams: pairs of events around each wait, read later.
#pragma once

#include <vector>

#include "engine/device/context.h"

namespace trireme::cuda {

class WaitTimes {
 public:
  // The main stream waits for `event`, between two events that tell the time.
  void wait(Context& gpu, const Event& event);
  // Seconds of the waits since the last call. The main stream must be through with them.
  double take_seconds();

 private:
  struct Pair {
    Event before, after;
  };
  std::vector<Pair> pairs_;  // used again and again
  size_t used_ = 0;
};

}  // namespace trireme::cuda
