// Evaluator of a model in any parallel layout: validation loss, and log-likelihoods of documents.
// The data-parallel ranks share the samples.
#pragma once

#include "training/data/examples/example_set.h"
#include "training/step/train_step.h"

namespace trireme {

struct EvalResult {
  double loss = 0;                       // nats per token with a target
  int64_t tokens = 0;                    // tokens with a target
  int64_t samples = 0, all_samples = 0;  // evaluated samples, and all samples of the source
};

class Evaluator {
 public:
  Evaluator(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
            int64_t micro_batch_size, int64_t sequence_length);

  // Memory plan of activations and scratch for one pass through the pipeline, from a planning run.
  ArenaPlan plan();
  // Evaluates max_samples evenly spaced samples of `source` (0: all). The choice of samples does
  // not depend on the layout. Collective; every rank returns the same result, and no training state
  // changes. Calls progress(done, total), in samples, on every rank.
  EvalResult run(BatchSource& source, int64_t max_samples, const ArenaPlan& plan,
                 const std::function<void(int64_t, int64_t)>& progress = {});
  // The same for all samples. Also calls take(row, loss) for every token with a target, on one of
  // the ranks. row: global token index in the source, sample x sequence_length + position.
  using TakeLoss = std::function<void(int64_t row, double loss)>;
  EvalResult run_tokens(BatchSource& source, const ArenaPlan& plan, const TakeLoss& take);
  // Log-likelihood of each document of a set: the sum of the log-probabilities of its trained
  // tokens; the same on all ranks. source: all items of the set, without shuffle.
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
