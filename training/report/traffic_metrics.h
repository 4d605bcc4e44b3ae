// Metrics of communication: bytes sent by all ranks in a step, by kind of collective
// (docs/reference/metrics.md).
#pragma once

#include "engine/observe/step_metrics.h"
#include "parallel/comm/world.h"

namespace trireme {

class TrafficMetrics {
 public:
  // Adds comm_<kind>_bytes and comm_window_bytes: the bytes since the last call. Collective; what
  // this call itself sends counts in the next call.
  void add(World& world, StepMetrics& metrics);

 private:
  Traffic before_;
};

}  // namespace trireme
