// Stochastic gradient descent with momentum as in PyTorch, optionally Nesterov's. State: momentum;
// none if the momentum is 0.
#pragma once

#include "optim/optimizer.h"

namespace trireme {

class Sgd final : public Optimizer {
 public:
  double momentum = 0.0;
  bool nesterov = false;

  std::unique_ptr<Optimizer> clone() const override;
  const char* name() const override { return "SGD"; }
  void visit(HyperparameterVisitor& visitor) override;
  std::vector<Finding> review(double lr, double weight_decay) const override;
  bool normalizes() const override { return false; }
  std::vector<StateStorage::Kind> states(DType dtype) const override;
  void update(Ctx& ctx, const UpdatePart& part) const override;
};

}  // namespace trireme
