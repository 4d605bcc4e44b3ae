// Interface of an optimizer: hyper-parameters, state tensors and the update of a range. One pair of
// files and one row of optimizers.cpp per optimizer; nothing outside this folder compares names of
// optimizers.
#pragma once

#include <memory>
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

// Operands of one update: a contiguous range of one parameter, and the states of the same elements.
struct UpdatePart {
  const ParameterSpec& spec;
  Tensor param, master;            // (n); master: float32, or absent
  ConstTensor grad;                // (n) float32, or float64 for float64 parameters
  std::span<const Tensor> states;  // (n) each, in the order of Optimizer::states()
  ConstTensor scalars;             // a StepScalars (engine/ops/optimizer/optimizer_scalars.h)
  double weight_decay = 0.0;       // 0 where the parameter is not decayed
  RandomKey rounding;              // key of stochastic rounding, with the index below
  ElementIndex index;              // global index of the range's elements
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::unique_ptr<Optimizer> clone() const = 0;
  // The value of optimizer.type.
  virtual const char* name() const = 0;

  // Visits the rule's own hyper-parameters: lr and weight_decay are OptimizerConfig's.
  virtual void visit(HyperparameterVisitor& visitor) = 0;
  // One "optimizer.params.momentum: problem", or a note, about values that are valid one by one.
  struct Finding {
    std::string key;
    std::string message;
    bool error = true;  // false: a note
  };
  // Findings about the rule's values and OptimizerConfig's two. Default: a note if a decoupled
  // decay, weight -= lr x weight_decay x weight, changes the sign of weights.
  virtual std::vector<Finding> review(double lr, double weight_decay) const;
  // Whether an update changes every weight by about the learning rate, regardless of the size of
  // its gradient.
  virtual bool normalizes() const = 0;

  // State tensors by their kind in checkpoints, all initialized to zero. dtype:
  // optimizer.state_dtype, or float64 for float64 parameters; a state that needs more precision
  // than bfloat16 may use another.
  virtual std::vector<StateStorage::Kind> states(DType dtype) const = 0;
  // Whether update() must see each parameter of two or more dimensions as one whole range; layouts
  // that split matrices are then refused.
  virtual bool needs_matrices() const { return false; }
  virtual void update(Ctx& ctx, const UpdatePart& part) const = 0;
};

}  // namespace trireme
