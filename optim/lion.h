// Lion (Chen et al. 2023, arXiv 2302.06675): the update is the sign of an interpolation between
// momentum and gradient, times the learning rate. State: exp_avg.
#pragma once

#include "optim/optimizer.h"

namespace trireme {

class Lion final : public Optimizer {
 public:
  Betas betas{0.9, 0.99};

  std::unique_ptr<Optimizer> clone() const override;
  const char* name() const override { return "Lion"; }
  void visit(HyperparameterVisitor& visitor) override;
  bool normalizes() const override { return true; }
  std::vector<StateStorage::Kind> states(DType dtype) const override;
  void update(Ctx& ctx, const UpdatePart& part) const override;
};

}  // namespace trireme
