// Hyper-parameters of optimizers: their rows in the configuration of a run, and the visitor that
// reads and writes them.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// A key of optimizer.params. Its default is the value of a default-constructed optimizer.
struct Hyperparameter {
  Key key;  // path: the name under optimizer.params
  // The default has no effect: it may be given with any other optimizer.
  bool default_is_neutral = false;
  // End of the error when the key is refused for another optimizer. advice: follows "is for SGD,
  // not for optimizer.type AdamW". needs: if the type is not the whole condition, "needs " and this
  // text replace both.
  std::string advice = {};
  std::string needs = {};
};

// Decay rates of the first and second moment, or of the two uses of one moment.
struct Betas {
  double first = 0.0, second = 0.0;
};

// Visits each hyper-parameter of an optimizer in the order of its resolved configuration: to add
// rows to a schema, to set values from a document, or to write values into one.
class HyperparameterVisitor {
 public:
  virtual ~HyperparameterVisitor() = default;
  virtual void number(double& value, const Hyperparameter& row) = 0;
  virtual void flag(bool& value, const Hyperparameter& row) = 0;
  virtual void betas(Betas& value, const Hyperparameter& row) = 0;
};

// Row of the key `name`; HuggingFace's "auto" counts as left out.
Hyperparameter hyperparameter(std::string name, std::string help);
// Row of "betas", shared by all optimizers that have them.
Hyperparameter betas_row(std::string help);

}  // namespace trireme
