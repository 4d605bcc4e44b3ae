// One training step on one rank of a data-parallel group: micro-batches forward and backward, gradient
// reduction, the decision to clip or skip, the update.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "optim/flat_optimizer.h"
#include "optim/step_control.h"
#include "parallel/gradient_reducer.h"
#include "training/data/batch_source.h"
#include "training/run_config.h"
#include "transformer/model.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;     // the one this step used
  int64_t valid_tokens = 0;  // targets with a loss, over all ranks
  bool skipped = false;      // loss or gradient norm was not finite
  std::string first_bad;     // name of the first non-finite gradient element of a skipped step
  int64_t consecutive_skips = 0;
  int64_t total_skips = 0;
};

// Everything that is trained, and its bytes. Made first; memory is taken by allocate().
class TrainState {
 public:
  TrainState(const RunConfig& config);
  void allocate();
  void initialize(Ctx& ctx);  // fresh weights from config.seed
  int64_t bytes() const;      // parameters, gradients, optimizer state

  Model model;
  ParameterStore store;
  FlatOptimizer optimizer;
  Tensor step_state() const;  // a StepState (optim/step_control.h)

 private:
  friend class TrainStep;
  DType dtype_;
  LossScaleConfig loss_scale_;
  Buffer scalars_;  // StepState, StepScalars, loss sum, sum of squares, gradient scale
};

class TrainStep {
 public:
  TrainStep(const RunConfig& config, TrainState& state, Communicator& group, Ctx& ctx);

  // The activations and scratch of one step, from a planning run: reads and writes no tensor.
  ArenaPlan plan();
  // `batches`: this rank's micro-batches of the step. The arena must hold the plan.
  StepResult run(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan);

  double exposed_communication_seconds() const;

 private:
  void micro_batch(const MicroBatch& batch, bool last);
  void reduce_and_update(int64_t step);
  Tensor scalar(int slot, DType dtype, int64_t count = 1) const;
  RunConfig config_;
  TrainState& state_;
  Communicator& group_;
  Ctx& ctx_;
  std::unique_ptr<GradientReducer> reducer_;
};

// A micro-batch of the right size and no meaning, for planning runs.
MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length);
// Views of a micro-batch's arrays.
Tokens tokens_of(const MicroBatch& batch);

}  // namespace trireme
