#include "optim/sgd.h"

#include "engine/core/error.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/optimizer/optimizer_step.h"

namespace trireme {
namespace {

constexpr const char* kNesterovNeeds = "optimizer.type SGD and a momentum above 0";

}  // namespace

std::unique_ptr<Optimizer> Sgd::clone() const { return std::make_unique<Sgd>(*this); }

void Sgd::visit(HyperparameterVisitor& visitor) {
  Hyperparameter row = hyperparameter("momentum", "momentum of SGD; 0: plain gradient descent");
  row.key.at_least(0).below(1).alias({"sgd_momentum"});
  row.default_is_neutral = true;
  row.advice = "; see optimizer.params.betas";
  visitor.number(momentum, row);
  row = hyperparameter("nesterov", "Nesterov momentum; SGD with momentum only");
  row.default_is_neutral = true;
  row.needs = kNesterovNeeds;
  visitor.flag(nesterov, row);
}

std::vector<Optimizer::Finding> Sgd::review(double lr, double weight_decay) const {
  std::vector<Finding> findings = Optimizer::review(lr, weight_decay);
  if (nesterov && momentum <= 0)
    findings.push_back(
        {.key = "optimizer.params.nesterov", .message = concat("needs ", kNesterovNeeds)});
  return findings;
}

std::vector<StateStorage::Kind> Sgd::states(DType dtype) const {
  if (momentum > 0) return {{kKindMomentum, dtype}};
  return {};
}

void Sgd::update(Ctx& ctx, const UpdatePart& part) const {
  const Tensor m = part.states.empty() ? Tensor() : part.states[0];
  sgd_step(ctx, part.param, part.master, part.grad, m, part.scalars,
           {.momentum = momentum,
            .weight_decay = part.weight_decay,
            .nesterov = nesterov,
            .rounding = part.rounding,
            .index = part.index});
}

}  // namespace trireme
