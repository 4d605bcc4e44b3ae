// Hyper-parameters of optimizers: their keys in the run configuration, and the visitor that reads
// and writes their values.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// Key under optimizer.params. Its default is the value in a default-constructed optimizer.
struct Hyperparameter {
  Key key;  // path: relative to optimizer.params
  // The default value changes nothing, so it is also accepted with optimizers without this key.
  bool default_is_neutral = false;
  // The error for an optimizer without this key is "needs optimizer.type SGD, got AdamW", followed
  // by `advice`. If the key needs more than the type, set `needs`: the error is then "needs "
  // followed by `needs`.
  std::string advice = {};
  std::string needs = {};
};

// Decay rates: of the first and second moment (Adam), or for the two uses of one moment (Lion).
struct Betas {
  double first = 0.0, second = 0.0;
};

// Visitor of an optimizer's hyper-parameters, in the order of the resolved configuration.
// Implementations add keys to a schema, set values from a document, or write values to one.
class HyperparameterVisitor {
 public:
  virtual ~HyperparameterVisitor() = default;
  virtual void number(double& value, const Hyperparameter& row) = 0;
  virtual void flag(bool& value, const Hyperparameter& row) = 0;
  virtual void betas(Betas& value, const Hyperparameter& row) = 0;
};

// Hyper-parameter with the key `name`. HuggingFace's "auto" counts as a missing value.
Hyperparameter hyperparameter(std::string name, std::string help);
// "betas", shared by all optimizers that have them.
Hyperparameter betas_row(std::string help);

}  // namespace trireme
