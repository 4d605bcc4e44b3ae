// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888): AdamW whose second moment is frozen after
// freeze_step steps. The first moment is then linear in the gradients, and ranks can exchange it
// compressed with error feedback (CompressedGradientSum::Moments). Unlike DeepSpeed's, the moments
// are bias-corrected.
#pragma once

#include "optim/adamw.h"

namespace trireme {

class OneBitAdam final : public AdamW {
 public:
  OneBitAdam() { betas = {0.9, 0.999}; }  // v must have seen many steps when it is frozen
  double freeze_step = 100'000;           // whole; DeepSpeed's default

  std::unique_ptr<Optimizer> clone() const override;
  const char* name() const override { return "OneBitAdam"; }
  void visit(HyperparameterVisitor& visitor) override;
  std::vector<Finding> review(double lr, double weight_decay) const override;
  std::optional<MomentExchange> moment_exchange() const override;

 protected:
  int64_t frozen_after(int64_t step) const override;
};

}  // namespace trireme
