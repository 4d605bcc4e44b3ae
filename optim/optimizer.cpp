#include "optim/optimizer.h"

namespace trireme {

std::vector<Optimizer::Finding> Optimizer::review(double) const { return {}; }

Hyperparameter hyperparameter(std::string name, std::string help) {
  Key key;
  key.path = std::move(name);
  key.help = std::move(help);
  key.auto_left_out();
  return {.key = std::move(key)};
}

Hyperparameter betas_row(std::string help) {
  Hyperparameter row = hyperparameter("betas", std::move(help));
  row.key.shape = "two numbers";
  return row;
}

}  // namespace trireme
