// Bytes that all ranks sent, by kind of operation, as members of the step's record
// (docs/reference/metrics.md).
#pragma once

#include "engine/observe/step_metrics.h"
#include "parallel/comm/world.h"

namespace trireme {

class TrafficMetrics {
 public:
  // Collective. Adds comm_<kind>_bytes and comm_window_bytes of the time since the last call. What
  // this call itself sends belongs to the next one.
  void add(World& world, StepMetrics& metrics);

 private:
  Traffic before_;
};

}  // namespace trireme
