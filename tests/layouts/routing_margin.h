// How far the routers of a run are from choosing other experts: what rounding would have to exceed.
#pragma once

#include <limits>

#include "engine/ops/context.h"
#include "transformer/config/moe_config.h"

namespace trireme::test {

// Watches the routers' scores of a run on one rank.
class RoutingMargin {
 public:
  explicit RoutingMargin(const MoeConfig& moe) : moe_(moe) {}
  void watch(Ctx& ctx);  // from now on; this object must outlive the run

  // The least, over tokens, layers and steps, of: what the k-th chosen expert (score + bias) is
  // above the best that was not chosen among the kept groups, and the last kept group above the
  // first that was not.
  double least() const { return least_; }

 private:
  void add_token(const double* scores);
  MoeConfig moe_;
  std::vector<double> bias_;
  double least_ = std::numeric_limits<double>::infinity();
};

// The margin that a case must have, so that rounding cannot change a choice; scores lie in (0, 1).
// In float64 a thousand times the 1e-9 by which layouts may differ, in float32 twenty times the
// 1e-6: the seeds of the models are chosen so. In bfloat16 scores differ by 2^-8 and more, and
// among thousands of choices some are always nearer: models with experts are not compared there.
double required_routing_margin(DType dtype);

}  // namespace trireme::test
