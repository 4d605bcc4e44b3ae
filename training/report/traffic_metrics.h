// Bytes sent by all ranks, by kind of operation, as members of the step's record
// (docs/reference/metrics.md).
#pragma once

#include "engine/observe/step_metrics.h"
#include "parallel/comm/world.h"

namespace trireme {

class TrafficMetrics {
 public:
  // Collective. Adds comm_<kind>_bytes and comm_window_bytes since the last call. Bytes sent by
  // this call itself count in the next one.
  void add(World& world, StepMetrics& metrics);

 private:
  Traffic before_;
};

}  // namespace trireme
