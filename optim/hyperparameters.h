// Hyper-parameters of optimizers: their rows in a run's configuration, and the visitor that reads
// and writes them.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// A key of optimizer.params. Its default is the value of a default-constructed optimizer.
struct Hyperparameter {
  Key key;  // path: the name under optimizer.params
  // The default asks for nothing: it may be given beside any other optimizer.
  bool default_is_neutral = false;
  // Beside another optimizer the key is refused: "is for SGD, not for optimizer.type AdamW",
  // followed by `advice`; or, where that would not be the whole condition, "needs " and `needs`.
  std::string advice = {};
  std::string needs = {};
};

// Decay of the first and of the second moment, or of the two uses of one.
struct Betas {
  double first = 0.0, second = 0.0;
};

// Visits each hyper-parameter of an optimizer in the order of its resolved configuration: to add
// rows to a schema, to set values from a document, to write them into one.
class HyperparameterVisitor {
 public:
  virtual ~HyperparameterVisitor() = default;
  virtual void number(double& value, const Hyperparameter& row) = 0;
  virtual void flag(bool& value, const Hyperparameter& row) = 0;
  virtual void betas(Betas& value, const Hyperparameter& row) = 0;
};

// Row of the key `name`, in which HuggingFace's "auto" counts as left out.
Hyperparameter hyperparameter(std::string name, std::string help);
// Row of "betas", which all optimizers that have them share.
Hyperparameter betas_row(std::string help);

}  // namespace trireme
