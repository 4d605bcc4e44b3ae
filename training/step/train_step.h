// One training step on one rank of a parallel layout: forward and backward of the micro-batches,
// gradient reduction, the decision to clip or skip, the update.
//
// One normaliser: the gradient of every token is multiplied by 1 / (valid targets of the global
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
#include "training/config/run_config.h"
#include "training/step/micro_batch_graphs.h"
#include "training/step/train_stage.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;       // used by this step
  int64_t valid_tokens = 0;    // targets with a loss, over all ranks; preferences: pairs
  PreferenceSums preferences;  // of the step, over all ranks
  bool skipped = false;        // loss or gradient norm was not finite
  // Name of the first non-finite gradient element of a skipped step, over all ranks.
  std::string first_bad;
  int64_t consecutive_skips = 0;
  int64_t total_skips = 0;
  // Mixture of experts: router losses of all layers, each a mean over the batch (balance, z,
  // importance, load), and how evenly each layer used its experts.
  std::array<double, 4> router_losses{};
  std::vector<ExpertLoad> expert_loads;
  // Time spent waiting for gradient sums that backward did not hide, and for other pipeline stages.
  // On a GPU the first is the time in which its main stream waited for any communication.
  double exposed_communication_seconds = 0;
  double pipeline_idle_seconds = 0;
};

// This rank's part of everything that is trained, and its bytes. Construct it first; allocate()
// allocates the memory.
class TrainState {
 public:
  TrainState(const RunConfig& config, const Layout& layout);
  void allocate(Ctx& ctx);
  void initialize(Ctx& ctx);  // new weights from config.seed
  int64_t bytes() const;      // parameters, gradients, optimizer state, in memory

  Model model;
  ParameterStore store;
  FlatOptimizer optimizer;
  // Decisions of the steps so far; on a GPU reading waits for the last of them.
  StepState read_step_state(Ctx& ctx) const;
  void write_step_state(Ctx& ctx, const StepState& state);

 private:
  friend class TrainStep;
  Tensor step_state() const;
  DType dtype_;
  int64_t sequence_length_;
  LossScaleConfig loss_scale_;
  Buffer scalars_;      // StepState, StepScalars, loss sum, sum of squares, gradient scale
  Buffer on_the_host_;  // GPU: copies of them, one per step that may be open
};

class TrainStep {
 public:
  TrainStep(const RunConfig& config, TrainState& state, const Groups& groups, Ctx& ctx);

  // Activations and scratch of one step, from a planning run: reads and writes no tensor.
  ArenaPlan plan();
  // batches: whole micro-batches of this rank's data-parallel index; they may be changed on return.
  // The arena must hold the plan. On a GPU the step is queued and the host does not wait for it,
  // except for tensors staged through the host and for the token counts of experts.
  void start(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan);
  // Waits for the oldest started step and returns its result. Collective.
  StepResult finish();
  StepResult run(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan) {
    start(step, batches, plan);
    return finish();
  }
  // Limit on open steps (started and not finished): a GPU works on one while the host queues the
  // next.
  int64_t max_open() const { return ctx_.gpu != nullptr ? kMaxOpen : 1; }
  int64_t open() const { return started_ - finished_; }
  const MicroBatchGraphs& graphs() const { return graphs_; }

  static constexpr int64_t kMaxOpen = 2;

 private:
  // Data of an open step besides its scalars.
  struct Open {
    int64_t step = 0;
    int64_t valid_tokens = 0;
    PreferenceSums preferences;
    std::vector<ExpertLoad> expert_loads;
    double exposed_seconds = 0;  // CPU only
    double idle_seconds = 0;
    int64_t waits = 0;  // GPU: waits for communication that this step has queued
    cuda::Event copied;
  };
  Open& opened(int64_t number) { return open_[static_cast<size_t>(number % kMaxOpen)]; }
  const std::byte* scalars_of(int64_t number) const;
  void copy_scalars();
  const std::vector<MicroBatch>& batch_shards(const std::vector<MicroBatch>& batches);
  PreferenceSums all_preferences() const;
  int64_t count_valid_targets(const std::vector<MicroBatch>& batches) const;
  void forward_and_backward(int64_t step, const std::vector<MicroBatch>& batches);
  void local_sum_of_squares();
  void reduce_and_update(int64_t step);
  double rate(int64_t step) const;
  void search_first_bad();
  std::string name_first_bad(int64_t found) const;
  Tensor scalar(int slot, DType dtype, int64_t count = 1) const;
  Tensor sums(int begin, int end) const;  // of kSums
  RunConfig config_;
  TrainState& state_;
  const Groups& groups_;
  Ctx& ctx_;
  Schedule schedule_;
  PipelineExecutor executor_;
  TrainStage stage_;
  MicroBatchGraphs graphs_;
  std::vector<FlatRange> counted_;  // of the stored gradients, in this rank's part of the norm
  std::vector<MicroBatch> local_;   // if the whole batches cannot be used
  GradientSync sync_;
  PipelineReport pipeline_;
  std::array<Open, kMaxOpen> open_;
  int64_t started_ = 0, finished_ = 0;
};

// Allocates the memory of a run whose state is initialized or loaded next: the state's memory and
// `arena_bytes` for activations and scratch, the capacity of the largest plan.
void take_memory(TrainState& state, Ctx& ctx, int64_t arena_bytes);
// Prepares a first step with new weights, for a run that only trains: plans, allocates,
// initializes. Returns the plan of a step.
ArenaPlan start_fresh(TrainState& state, TrainStep& step, Ctx& ctx);

// Whole micro-batch of the right size with arbitrary content, for planning runs.
MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length);

}  // namespace trireme
