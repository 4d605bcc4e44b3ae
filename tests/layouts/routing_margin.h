// Margin of a run's routers: the score change by which rounding would change a choice of experts.
#pragma once

#include <limits>

#include "engine/ops/context.h"
#include "transformer/config/moe_config.h"

namespace trireme::test {

// Observes the routers' scores of a run on one rank.
class RoutingMargin {
 public:
  explicit RoutingMargin(const MoeConfig& moe) : moe_(moe) {}
  void watch(Ctx& ctx);  // starts observing; this object must outlive the run

  // Minimum over tokens, layers and steps of two distances: of the k-th chosen expert (score +
  // bias) to the best one not chosen in the kept groups, and of the last kept group to the first
  // one not kept.
  double least() const { return least_; }

 private:
  void add_token(const double* scores);
  MoeConfig moe_;
  std::vector<double> bias_;
  double least_ = std::numeric_limits<double>::infinity();
};

// Margin that a case must have so that rounding cannot change a choice; scores are in (0, 1).
// float64: a thousand times the 1e-9 by which layouts may differ; float32: twenty times the 1e-6.
// The models' seeds are chosen accordingly. In bfloat16 scores differ by 2^-8 and more, and among
// thousands of choices some always have a smaller margin: models with experts are not compared
// there.
double required_routing_margin(DType dtype);

}  // namespace trireme::test
