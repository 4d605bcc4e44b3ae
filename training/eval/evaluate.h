// Validation loss over a set of sequences, divided among the data-parallel ranks of a layout.
#pragma once

#include "training/data/examples/example_set.h"
#include "training/step/train_step.h"

namespace trireme {

struct EvalResult {
  double loss = 0;                       // nats per token with a target
  int64_t tokens = 0;                    // tokens with a target
  int64_t samples = 0, all_samples = 0;  // evaluated, and in the set
};

class Evaluator {
 public:
  Evaluator(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
            int64_t micro_batch_size, int64_t sequence_length);

  // Activations and scratch of one run of the pipeline, from a planning run.
  ArenaPlan plan();
  // Evaluates max_samples samples of `source` at equal distances, the same in every layout and
  // every time (0: all of them). Every rank gets the same result; no state of the training changes.
  // Calls progress(done, total) on every rank.
  EvalResult run(BatchSource& source, int64_t max_samples, const ArenaPlan& plan,
                 const std::function<void(int64_t, int64_t)>& progress = {});
  // The same for all samples, also calling take(row, loss) for every token with a target, on one of
  // the ranks. row: number of the token in the source, sample x sequence length + position.
  using TakeLoss = std::function<void(int64_t row, double loss)>;
  EvalResult run_tokens(BatchSource& source, const ArenaPlan& plan, const TakeLoss& take);
  // Sums of the log-probabilities of the trained tokens of each document of a set; the same on all
  // ranks. source: all items of the set, in order.
  std::vector<double> log_likelihoods(const ExampleSet& set, ExampleSource& source,
                                      const ArenaPlan& plan);

 private:
  void take_losses(const std::vector<Activation>& losses) const;
  void fill(BatchSource& source, int64_t begin, int64_t total, int64_t all);
  double forward();  // sum of the losses of the filled batches; 0 in a planning run
  const Model& model_;
  ParameterStore& store_;
  const Groups& groups_;
  Ctx& ctx_;
  int64_t micro_batch_size_, sequence_length_;
  Schedule schedule_;  // forward only, with enough micro-batches to keep all pipeline stages busy
  PipelineExecutor executor_;
  EvalStage stage_;
  MicroBatch whole_;
  std::vector<MicroBatch> local_;  // one per pass of the schedule
  std::vector<int64_t> samples_;   // of one micro-batch
  TakeLoss take_;                  // null: token losses are not needed
};

}  // namespace trireme
