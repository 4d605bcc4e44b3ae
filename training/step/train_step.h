// Training step on one rank of a parallel layout: forward and backward of the micro-batches,
// gradient reduction, the decision to clip or skip, and the optimizer update.
//
// The loss of a step is the mean over the valid targets of the global batch. These are counted
// before backward, and the gradient of every token is divided by their number. The sum over
// micro-batches and ranks is therefore the gradient of the loss in every layout.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "optim/flat_optimizer.h"
#include "optim/step_control.h"
#include "parallel/gradient_sync.h"
#include "parallel/outer/gradient_compression.h"
#include "parallel/outer/outer_state.h"
#include "parallel/outer/remote/whole_model.h"
#include "parallel/outer/weight_pieces.h"
#include "training/config/run_config.h"
#include "training/step/micro_batch_graphs.h"
#include "training/step/train_stage.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;       // loss scale of this step
  int64_t valid_tokens = 0;    // targets with loss, over all ranks; preferences: number of pairs
  PreferenceSums preferences;  // sums over the pairs of all ranks
  bool skipped = false;        // loss or gradient norm was not finite
  // Skipped step: name of the first non-finite gradient element over all ranks, or "the loss".
  std::string first_bad;
  int64_t consecutive_skips = 0;  // skipped steps in a row, up to this one
  int64_t total_skips = 0;        // skipped steps of the whole run
  // Mixture of experts: router losses, summed over layers and averaged over the batch (balance, z,
  // importance, load), and how evenly each layer used its experts.
  std::array<double, 4> router_losses{};
  std::vector<ExpertLoad> expert_loads;
  // CPU: time spent waiting for gradient reductions that did not overlap with backward. GPU: time
  // in which the main stream waited for any communication.
  double exposed_communication_seconds = 0;
  double pipeline_idle_seconds = 0;  // time spent waiting for other pipeline stages
};

// Model, parameters and optimizer of one rank. The constructor determines sizes only; allocate()
// allocates the memory.
class TrainState {
 public:
  // layout: of the rank in its site. nodes: of the ranks of the site, where gradients are
  // compressed between nodes (sum_levels()); else empty. InputError if the layout cannot divide
  // the parameters.
  TrainState(const RunConfig& config, const Layout& layout, GroupCoord site = {},
             const std::vector<int>& nodes = {});
  void allocate(Ctx& ctx);
  void initialize(Ctx& ctx);  // new weights, from ctx.seed
  // Memory of parameters, gradients, optimizer state, compression and the outer algorithm; on a GPU
  // in its memory.
  int64_t bytes() const;
  // Host memory of the rounds of a site that is a job of its own: whole weights, and the messages
  // by which its ranks exchange them.
  int64_t host_bytes() const;

  Model model;
  ParameterStore store;
  FlatOptimizer optimizer;
  std::unique_ptr<GradientCompression> compression;  // nullptr: gradients are summed exactly
  std::unique_ptr<OuterState> outer;                 // nullptr: one site
  GroupCoord site;       // of this rank among the sites of its job (parallel/outer/sites.h)
  GroupCoord data_site;  // among all sites: `site`, or that of a job that is a site
  bool is_first_rank;    // of the job
  // Rank 0 of a site that is a job of its own; else nullptr. In host memory.
  std::unique_ptr<WholeModel> whole;
  StoredWeights weights() const;  // after allocate()
  // State after the last started step. On a GPU read_step_state() waits for that step.
  StepState read_step_state(Ctx& ctx) const;
  void write_step_state(Ctx& ctx, const StepState& state);

 private:
  friend class TrainStep;
  Tensor step_state() const;
  DType dtype_;
  int64_t sequence_length_;
  LossScaleConfig loss_scale_;
  Buffer scalars_;      // StepState, StepScalars, sums, gradient scale, first non-finite gradient
  Buffer on_the_host_;  // GPU: host copies of scalars_, one per step that may be open
};

// Whole weights of the run's outer algorithm (parallel/outer/remote/whole_model.h).
std::unique_ptr<WholeModel> make_whole_model(const RunConfig& config, OuterState::Holder holder);

// Nodes of the ranks of the caller's site. all: the ranks of all sites.
std::vector<int> nodes_of_site(const RunConfig& config, const Communicator& all);

// State of a rank of `all`, the ranks of all sites. Not collective.
TrainState make_train_state(const RunConfig& config, const Communicator& all);

class TrainStep {
 public:
  TrainStep(const RunConfig& config, TrainState& state, const Groups& groups, Ctx& ctx);

  // Memory plan of activations and scratch for one step, from a planning run, which reads and
  // writes no tensor.
  ArenaPlan plan();
  // Starts step `step`. Collective. batches: whole micro-batches of this rank's data-parallel
  // index; they may be overwritten on return. The arena must have the capacity of `plan`. On a GPU
  // the step is queued; the host waits only for tensors that are staged through the host, for the
  // token counts of experts, for the loss of preference pairs and, with compression, for the norm
  // of the gradients (CompressedGradientSum::finish()).
  void start(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan);
  // Waits for the oldest open step and returns its result. Collective.
  StepResult finish();
  StepResult run(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan) {
    start(step, batches, plan);
    return finish();
  }
  // Maximum number of open steps (started and not finished). On a GPU it is 2: the GPU runs one
  // step while the host queues the next.
  int64_t max_open() const { return ctx_.gpu != nullptr ? kMaxOpen : 1; }
  int64_t open() const { return started_ - finished_; }
  const MicroBatchGraphs& graphs() const { return graphs_; }

  static constexpr int64_t kMaxOpen = 2;

 private:
  // Data of an open step, in addition to its scalars.
  struct Open {
    int64_t step = 0;
    int64_t valid_tokens = 0;
    PreferenceSums preferences;
    std::vector<ExpertLoad> expert_loads;
    double exposed_seconds = 0;  // CPU only
    double idle_seconds = 0;
    int64_t waits = 0;   // GPU: number of waits for communication that this step queued
    cuda::Event copied;  // GPU: the scalars are on the host
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
  std::vector<FlatRange> counted_;  // stored gradients that this rank adds to the norm
  std::vector<MicroBatch> local_;   // batch shards; unused if they are the whole micro-batches
  std::unique_ptr<CompressedGradientSum> compressed_;  // nullptr: gradients are summed exactly
  GradientSync sync_;
  PipelineReport pipeline_;
  std::array<Open, kMaxOpen> open_;
  int64_t started_ = 0, finished_ = 0;
};

// Allocates the memory of a run: that of `state`, which is not initialized yet, and `arena_bytes`
// for activations and scratch (the capacity of the largest plan).
void allocate_memory(TrainState& state, Ctx& ctx, int64_t arena_bytes);
// Plans a step, allocates the memory and initializes new weights, for a run without evaluation.
// Returns the plan.
ArenaPlan start_fresh(TrainState& state, TrainStep& step, Ctx& ctx);

// Micro-batch of the given size with unspecified content, for planning runs.
MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length);

}  // namespace trireme
