#include "optim/optimizer.h"

#include "engine/core/error.h"

namespace trireme {

std::vector<Optimizer::Finding> Optimizer::review(double lr, double weight_decay) const {
  if (lr >= 1 || lr * weight_decay <= 1) return {};
  return {{.key = "optimizer.params.weight_decay",
           .message = concat("weight_decay x lr = ", lr * weight_decay,
                             " is above 1: each step changes the sign of the decayed weights"),
           .error = false}};
}

Hyperparameter hyperparameter(std::string name, std::string help) {
  Key key;
  key.path = std::move(name);
  key.help = std::move(help);
  key.auto_as_default();
  return {.key = std::move(key)};
}

Hyperparameter betas_row(std::string help) {
  Hyperparameter row = hyperparameter("betas", std::move(help));
  row.key.shape = "two numbers";
  return row;
}

}  // namespace trireme
