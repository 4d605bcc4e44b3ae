#include "optim/onebit_adam.h"

#include <cmath>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr double kMaxSteps = 1e12;

}  // namespace

std::unique_ptr<Optimizer> OneBitAdam::clone() const { return std::make_unique<OneBitAdam>(*this); }

void OneBitAdam::visit(HyperparameterVisitor& visitor) {
  AdamW::visit(visitor);
  Hyperparameter row = hyperparameter(
      "freeze_step",
      "OneBitAdam: first steps, in which it is AdamW with exact gradients; then the second moment "
      "stays as it is and ranks exchange the first one by compression.gradients");
  row.key.at_least(1).at_most(kMaxSteps);
  visitor.number(freeze_step, row);
}

std::vector<Optimizer::Finding> OneBitAdam::review(double lr, double weight_decay) const {
  std::vector<Finding> findings = AdamW::review(lr, weight_decay);
  if (freeze_step != std::floor(freeze_step))
    findings.push_back({.key = "optimizer.params.freeze_step",
                        .message = concat(freeze_step, " is not a whole number of steps")});
  return findings;
}

std::optional<Optimizer::MomentExchange> OneBitAdam::moment_exchange() const {
  return MomentExchange{betas.first, static_cast<int64_t>(freeze_step)};
}

int64_t OneBitAdam::frozen_after(int64_t step) const {
  const auto freeze = static_cast<int64_t>(freeze_step);
  return step >= freeze ? freeze : 0;
}

}  // namespace trireme
