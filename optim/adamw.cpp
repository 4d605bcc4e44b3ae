#include "optim/adamw.h"

#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/optimizer/optimizer_step.h"

namespace trireme {

std::unique_ptr<Optimizer> AdamW::clone() const { return std::make_unique<AdamW>(*this); }

void AdamW::visit(HyperparameterVisitor& visitor) {
  visitor.betas(betas, betas_row("decay rates of the first and second moment, each in [0, 1)"));
  Hyperparameter row =
      hyperparameter("eps", "constant added to the square root of the second moment");
  row.key.above(0).alias({"adam_eps"});
  visitor.number(eps, row);
}

std::vector<StateStorage::Kind> AdamW::states(DType dtype) const {
  return {{kKindExpAvg, dtype}, {kKindExpAvgSq, dtype}};
}

void AdamW::update(Ctx& ctx, const UpdatePart& part) const {
  adamw_step(ctx, part.param, part.master, part.grad, part.states[0], part.states[1], part.scalars,
             {.beta1 = betas.first,
              .beta2 = betas.second,
              .eps = eps,
              .weight_decay = part.weight_decay,
              .decoupled = decoupled(),
              .frozen_after = frozen_after(ctx.step),
              .rounding = part.rounding,
              .index = part.index});
}

std::unique_ptr<Optimizer> Adam::clone() const { return std::make_unique<Adam>(*this); }

std::vector<Optimizer::Finding> Adam::review(double, double weight_decay) const {
  if (weight_decay <= 0) return {};
  return {{.key = "optimizer.type",
           .message = "Adam adds the weight decay to the gradient; AdamW decays the weights "
                      "directly, as DeepSpeed's Adam does unless adam_w_mode is false",
           .error = false}};
}

}  // namespace trireme
