// Runs the steps that a scheduler plans (serving/scheduler/step_plan.h) on a model, whole or
// divided over ranks.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/device/graph.h"
#include "serving/engine/batch_builder.h"
#include "serving/engine/step_stage.h"
#include "serving/engine/token_chooser.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

struct ExecutorConfig {
  StepLimits limits;  // sequences: also the number of slots
  // Ids from here on are never chosen: a model's vocabulary may be padded beyond its tokenizer's,
  // and the rows of the padding were hardly trained. 0: the model's vocabulary.
  int64_t vocab_size = 0;
  // Where limits.adapters: of the inner columns of the model's adapters those of each that
  // sequences name.
  std::vector<AdapterColumns> adapters = {};
};

class ModelExecutor final : public StepExecutor {
 public:
  // groups: ranks that hold the model together, its matrices divided by tensor parallelism, its
  // experts, its layers by pipeline parallelism, one chunk a rank; nullptr: this rank holds the
  // whole model. The model has reserved limits.length positions.
  ModelExecutor(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
                const ExecutorConfig& config);

  // All ranks call it with the same plans and get the same results, chosen by one of them, the
  // first tensor-parallel rank of the last stage: exp() may differ in the last bit between CPUs,
  // and ranks that chose for themselves could part. The sequences of a step are divided into as
  // many micro-batches as there are stages. On a GPU passes over one token of each sequence are
  // recorded, once for each of some numbers of sequences, and then replayed, unless ranks share the
  // model or it has experts.
  StepOutcome execute(const StepPlan& plan) override;
  // Bytes of activations of the largest steps that the limits allow. Computes nothing; all ranks
  // alike.
  int64_t largest_step_bytes();
  // Other ranks stand in the middle of the step then, and what has come of a GPU's work is not
  // known.
  bool survives_failures() const override { return ctx_.gpu == nullptr && alone(); }

 private:
  using PassShape = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool>>;

  bool alone() const;  // no other rank holds a part of the model
  bool can_record() const;
  bool samples_there() const;
  int64_t padding_of(const StepPlan& plan) const;
  void write_batches(const StepPlan& plan);
  void run();
  const ArenaPlan& plan_for(const PassShape& shape);
  ArenaPlan planned_pass();
  int64_t planned_bytes(const std::vector<int64_t>& shares, bool new_prompts);
  void run_planned(const ArenaPlan& plan);
  void pass();
  void read_logits(int micro_batch, int64_t first, std::span<const float> logits);
  void read_tokens(int micro_batch, int64_t first, std::span<const int32_t> ids,
                   std::span<const double> logprobs);
  void share_outcomes();
  void share_embeddings();
  void broadcast(std::vector<double>& message);
  int64_t told_of(const LogitRow& row) const;  // log-probabilities beside the token's own
  StepOutcome collect(const StepPlan& plan);

  Ctx& ctx_;
  const Groups* groups_;
  const Model& model_;
  StepLimits limits_;
  DType params_dtype_;
  TokenChooser chooser_;
  BatchBuilder builder_;
  StepStage stage_;
  std::map<int, PipelineExecutor> executors_;   // of several stages, by the number of micro-batches
  int micro_batches_ = 1;                       // of the step under way
  std::vector<std::vector<LogitRow>> rows_;     // of each micro-batch
  std::vector<std::vector<float>> embeddings_;  // of the plan's sequences that embed
  const StepPlan* plan_ = nullptr;
  double choosing_seconds_ = 0;  // of the step under way
  std::map<PassShape, ArenaPlan> plans_;
  int64_t reserved_ = 0;  // bytes of the arena
  // Recorded passes over one token of each sequence, by their number,
  // CachedTokens::longest_context, on which the blocks of threads depend, and whether tokens are
  // sampled there; absent before the second one.
  std::map<std::tuple<int64_t, int64_t, bool>, cuda::Graph> graphs_;
  int64_t library_moves_ = 0;  // of the GPU when they were recorded
};

}  // namespace trireme
