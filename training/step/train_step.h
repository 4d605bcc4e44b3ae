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
#include "training/config/run_config.h"
#include "training/step/micro_batch_graphs.h"
#include "training/step/train_stage.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;       // the one this step used
  int64_t valid_tokens = 0;    // targets with a loss, over all ranks; of preferences pairs
  PreferenceSums preferences;  // of the step, over all ranks
  bool skipped = false;        // loss or gradient norm was not finite
  // Name of the first non-finite gradient element of a skipped step, on whichever rank it is.
  std::string first_bad;
  int64_t consecutive_skips = 0;
  int64_t total_skips = 0;
  // Mixture of experts: the losses of all layers' routers, of which each is a mean over the batch
  // (balance, z, importance, load), and how evenly each layer used its experts.
  std::array<double, 4> router_losses{};
  std::vector<ExpertLoad> expert_loads;
  // Waiting for sums of gradients that backward did not hide, and for other stages of the pipeline.
  // On a GPU the first is what its main stream stood waiting for any communication.
  double exposed_communication_seconds = 0;
  double pipeline_idle_seconds = 0;
};

// This rank's part of everything that is trained, and its bytes. Made first; memory is taken by
// allocate().
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
  Buffer scalars_;      // StepState, StepScalars, loss sum, sum of squares, gradient scale
  Buffer on_the_host_;  // of a GPU: copies of them, one for each step that may be open
};

class TrainStep {
 public:
  TrainStep(const RunConfig& config, TrainState& state, const Groups& groups, Ctx& ctx);

  // The activations and scratch of one step, from a planning run: reads and writes no tensor.
  ArenaPlan plan();
  // `batches`: the micro-batches of this rank's data-parallel index, whole; free for others at
  // return. The arena must hold the plan. On a GPU the step is queued and the host does not wait
  // for it (but for tensors that are staged through the host, and for the numbers of experts'
  // tokens).
  void start(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan);
  // Waits for the oldest step that was started and tells its result. Collective.
  StepResult finish();
  StepResult run(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan) {
    start(step, batches, plan);
    return finish();
  }
  // Steps that may be open, that is started and not finished, at a time: a GPU works on one while
  // the host queues the next.
  int64_t most_open() const { return ctx_.gpu != nullptr ? kMostOpen : 1; }
  int64_t open() const { return started_ - finished_; }
  const MicroBatchGraphs& graphs() const { return graphs_; }

  static constexpr int64_t kMostOpen = 2;

 private:
  // What is known of an open step beside its scalars.
  struct Open {
    int64_t step = 0;
    int64_t valid_tokens = 0;
    PreferenceSums preferences;
    std::vector<ExpertLoad> expert_loads;
    double exposed_seconds = 0;  // of a CPU
    double idle_seconds = 0;
    int64_t waits = 0;  // counted on the GPU when all was queued, less those of steps before
    cuda::Event copied;
  };
  Open& opened(int64_t number) { return open_[static_cast<size_t>(number % kMostOpen)]; }
  const std::byte* scalars_of(int64_t number) const;
  void copy_scalars();
  const std::vector<MicroBatch>& local_batches(const std::vector<MicroBatch>& batches);
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
  std::vector<MicroBatch> local_;   // where the whole batches do not serve
  GradientSync sync_;
  PipelineReport pipeline_;
  std::array<Open, kMostOpen> open_;
  int64_t started_ = 0, finished_ = 0;
};

// The memory of a run, whose state is initialized or loaded next: the state's and `arena_bytes` for
// activations and scratch, the capacity of the largest plan.
void take_memory(TrainState& state, Ctx& ctx, int64_t arena_bytes);
// Readies everything for a first step with fresh weights, of a run that does nothing but train:
// plans, takes the memory, initializes. Returns the plan of a step.
ArenaPlan start_fresh(TrainState& state, TrainStep& step, Ctx& ctx);

// A whole micro-batch of the right size and no meaning, for planning runs.
MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length);

}  // namespace trireme
