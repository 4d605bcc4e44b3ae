// One training step on one rank of a parallel layout: micro-batches forward and backward, gradient
// reduction, the decision to clip or skip, the update.
//
// One normaliser: the gradient of every token is multiplied with 1 / (valid targets of the global
// batch), counted before backward, so that sums over micro-batches and ranks are the gradient of
//   loss = sum over valid targets / number of valid targets
// in every layout.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "optim/flat_optimizer.h"
#include "optim/step_control.h"
#include "parallel/gradient_sync.h"
#include "training/run_config.h"
#include "training/train_stage.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;     // the one this step used
  int64_t valid_tokens = 0;  // targets with a loss, over all ranks
  bool skipped = false;      // loss or gradient norm was not finite
  // Name of the first non-finite gradient element of a skipped step, on whichever rank it is.
  std::string first_bad;
  int64_t consecutive_skips = 0;
  int64_t total_skips = 0;
  // Mixture of experts: the losses of all layers' routers, of which each is a mean over the batch
  // (balance, z, importance, load), and how evenly each layer used its experts.
  std::array<double, 4> router_losses{};
  std::vector<ExpertLoad> expert_loads;
};

// This rank's part of everything that is trained, and its bytes. Made first; memory is taken by allocate().
class TrainState {
 public:
  TrainState(const RunConfig& config, const Layout& layout);
  void allocate(Ctx& ctx);
  void initialize(Ctx& ctx);  // fresh weights from config.seed
  int64_t bytes() const;      // parameters, gradients, optimizer state, in memory

  Model model;
  ParameterStore store;
  FlatOptimizer optimizer;
  // What the steps so far decided; reading waits for the last of them on a GPU.
  StepState read_step_state(Ctx& ctx) const;
  void write_step_state(Ctx& ctx, const StepState& state);

 private:
  friend class TrainStep;
  Tensor step_state() const;
  DType dtype_;
  int64_t sequence_length_;
  LossScaleConfig loss_scale_;
  Buffer scalars_;  // StepState, StepScalars, loss sum, sum of squares, gradient scale
};

class TrainStep {
 public:
  TrainStep(const RunConfig& config, TrainState& state, const Groups& groups, Ctx& ctx);

  // The activations and scratch of one step, from a planning run: reads and writes no tensor.
  ArenaPlan plan();
  // `batches`: the micro-batches of this rank's data-parallel index, whole. The arena must hold the plan.
  StepResult run(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan);

  // In the last step: waiting for sums of gradients that backward did not hide, and for other stages of
  // the pipeline. On a GPU the first is what its main stream stood waiting for any communication.
  double exposed_communication_seconds() const {
    return ctx_.gpu != nullptr ? gpu_wait_seconds_ : sync_.exposed_seconds();
  }
  double pipeline_idle_seconds() const { return pipeline_.idle_seconds; }

 private:
  const std::vector<MicroBatch>& local_batches(const std::vector<MicroBatch>& batches);
  int64_t count_valid_targets(const std::vector<MicroBatch>& batches) const;
  void forward_and_backward(const std::vector<MicroBatch>& batches);
  void local_sum_of_squares();
  void reduce_and_update(int64_t step);
  std::string name_first_bad();
  Tensor scalar(int slot, DType dtype, int64_t count = 1) const;
  Tensor sums(int begin, int end) const;  // of kSums
  RunConfig config_;
  TrainState& state_;
  const Groups& groups_;
  Ctx& ctx_;
  Schedule schedule_;
  PipelineExecutor executor_;
  TrainStage stage_;
  std::vector<FlatRange> counted_;  // of the stored gradients, in this rank's part of the norm
  std::vector<MicroBatch> local_;   // where the whole batches do not serve
  GradientSync sync_;
  PipelineReport pipeline_;
  double gpu_wait_seconds_ = 0;
};

// The memory of a run, whose state is initialized or loaded next: the state's and `arena_bytes` for
// activations and scratch, the capacity of the largest plan.
void take_memory(TrainState& state, Ctx& ctx, int64_t arena_bytes);
// Readies everything for a first step with fresh weights, of a run that does nothing but train: plans,
// takes the memory, initializes. Returns the plan of a step.
ArenaPlan start_fresh(TrainState& state, TrainStep& step, Ctx& ctx);

// A whole micro-batch of the right size and no meaning, for planning runs.
MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length);

}  // namespace trireme
