#include "optim/lion.h"

#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/optimizer/optimizer_step.h"

namespace trireme {

std::unique_ptr<Optimizer> Lion::clone() const { return std::make_unique<Lion>(*this); }

void Lion::visit(HyperparameterVisitor& visitor) {
  visitor.betas(betas, betas_row("weights of the momentum in the update and in the next momentum"));
}

std::vector<StateStorage::Kind> Lion::states(DType dtype) const { return {{kKindExpAvg, dtype}}; }

void Lion::update(Ctx& ctx, const UpdatePart& part) const {
  lion_step(ctx, part.param, part.master, part.grad, part.states[0], part.scalars,
            {.beta1 = betas.first,
             .beta2 = betas.second,
             .weight_decay = part.weight_decay,
             .rounding = part.rounding,
             .index = part.index});
}

}  // namespace trireme
