// Interface of an optimizer: hyper-parameters, state tensors and the update of a range. Each
// optimizer has its own header and source file, and one row in optimizers.cpp. Code outside this
// folder does not depend on the name of an optimizer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/element_index.h"
#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "optim/hyperparameters.h"
#include "optim/state_storage.h"
#include "parallel/parameter_store.h"

namespace trireme {

struct Ctx;

// Operands of one update: n consecutive elements of one parameter, and their states.
struct UpdatePart {
  const ParameterSpec& spec;
  Tensor param, master;            // (n); master: float32, or absent
  ConstTensor grad;                // (n) float32, or float64 for float64 parameters
  std::span<const Tensor> states;  // (n) each, in the order of Optimizer::states()
  ConstTensor scalars;             // a StepScalars (engine/ops/optimizer/optimizer_scalars.h)
  double weight_decay = 0.0;       // 0 for norms and biases
  RandomKey rounding;              // random key of stochastic rounding, used with `index`
  ElementIndex index;              // global indices of the elements
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::unique_ptr<Optimizer> clone() const = 0;
  // The value of optimizer.type.
  virtual const char* name() const = 0;

  // Visits the hyper-parameters of this optimizer; lr and weight_decay are in OptimizerConfig.
  virtual void visit(HyperparameterVisitor& visitor) = 0;
  // Error or note about a combination of values, each of which is valid by itself.
  struct Finding {
    std::string key;      // "optimizer.params.momentum"
    std::string message;  // what is reported for the key
    bool error = true;    // false: a note
  };
  // Checks this optimizer's values together with lr and weight_decay. Default: a note if lr < 1 and
  // decoupled decay, weight -= lr x weight_decay x weight, would change the sign of weights.
  virtual std::vector<Finding> review(double lr, double weight_decay) const;
  // True if an update changes every weight by about the learning rate, however large its gradient
  // is.
  virtual bool normalizes() const = 0;

  // State tensors, named by their kind in checkpoints; all start at zero. dtype:
  // optimizer.state_dtype, or float64 for float64 parameters. A state that needs more precision
  // than bfloat16 may use another dtype.
  virtual std::vector<StateStorage::Kind> states(DType dtype) const = 0;
  // True if update() needs each parameter of two or more dimensions as one range. Layouts that
  // split matrices are then refused.
  virtual bool needs_matrices() const { return false; }
  // For optimizers that let ranks exchange the first moment, m = beta m + (1 - beta) g, in place of
  // g from a step of the run on: the first of states(), which must be linear in g from then on.
  struct MomentExchange {
    double beta = 0;
    int64_t from_step = 0;
  };
  virtual std::optional<MomentExchange> moment_exchange() const { return {}; }
  // Updates part.param, part.master and part.states in place. ctx.step: of the run, from 0.
  virtual void update(Ctx& ctx, const UpdatePart& part) const = 0;
};

}  // namespace trireme
