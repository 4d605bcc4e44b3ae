// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), which decays the weights directly, and Adam
// (Kingma & Ba 2015), which adds the weight decay to the gradient. States: exp_avg and exp_avg_sq.
#pragma once

#include "optim/optimizer.h"

namespace trireme {

class AdamW : public Optimizer {
 public:
  Betas betas{0.9, 0.95};
  double eps = 1e-8;

  std::unique_ptr<Optimizer> clone() const override;
  const char* name() const override { return "AdamW"; }
  void visit(HyperparameterVisitor& visitor) override;
  bool normalizes() const override { return true; }
  std::vector<StateStorage::Kind> states(DType dtype) const override;
  void update(Ctx& ctx, const UpdatePart& part) const override;

 protected:
  virtual bool decoupled() const { return true; }
  virtual int64_t frozen_after(int64_t /*step*/) const { return 0; }  // AdamWArgs::frozen_after
};

class Adam final : public AdamW {
 public:
  std::unique_ptr<Optimizer> clone() const override;
  const char* name() const override { return "Adam"; }
  std::vector<Finding> review(double lr, double weight_decay) const override;

 protected:
  bool decoupled() const override { return false; }
};

}  // namespace trireme
