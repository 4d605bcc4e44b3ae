// Validation loss over a set of sequences, shared among the data-parallel ranks of a layout.
#pragma once

#include "training/data/examples/example_set.h"
#include "training/step/train_step.h"

namespace trireme {

struct EvalResult {
  double loss = 0;                       // nats per token with a target
  int64_t tokens = 0;                    // such tokens
  int64_t samples = 0, all_samples = 0;  // taken, and in the set
};

class Evaluator {
 public:
  Evaluator(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
            int64_t micro_batch_size, int64_t sequence_length);

  // The activations and scratch of one run of the pipeline, from a planning run.
  ArenaPlan plan();
  // max_samples samples of `source` at equal distances, the same in every layout and every time (0:
  // all of them). Every rank gets the same result; nothing that training depends on changes.
  // progress(done, total) is called on every rank.
  EvalResult run(BatchSource& source, int64_t max_samples, const ArenaPlan& plan,
                 const std::function<void(int64_t, int64_t)>& progress = {});
  // The same, and take(row, loss) for every token with a target, on one of the ranks: row is its
  // number in the source, sample x sequence length + place.
  using TakeLoss = std::function<void(int64_t row, double loss)>;
  EvalResult run_tokens(BatchSource& source, const ArenaPlan& plan, const TakeLoss& take);
  // Of each document of a set the sum of the log-probabilities of its learned tokens; the same on
  // all ranks. source: of all its items, in order.
  std::vector<double> log_likelihoods(const ExampleSet& set, ExampleSource& source,
                                      const ArenaPlan& plan);

 private:
  void take_losses(const std::vector<Activation>& losses) const;
  void fill(BatchSource& source, int64_t begin, int64_t total, int64_t all);
  double forward();  // the sum of losses of the batches filled in; 0 in a planning run
  const Model& model_;
  ParameterStore& store_;
  const Groups& groups_;
  Ctx& ctx_;
  int64_t micro_batch_size_, sequence_length_;
  Schedule schedule_;  // forward passes only, enough to keep all stages of a pipeline busy
  PipelineExecutor executor_;
  EvalStage stage_;
  MicroBatch whole_;
  std::vector<MicroBatch> local_;  // one per pass of the schedule
  std::vector<int64_t> samples_;   // of one of them
  TakeLoss take_;                  // absent: nobody asks
};

}  // namespace trireme
