// Executor of scheduled steps (serving/scheduler/scheduler_output.h) on a model, whole or divided
// over ranks.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/device/graph.h"
#include "serving/engine/batch_builder.h"
#include "serving/engine/sampler.h"
#include "serving/engine/step_stage.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

struct ExecutorConfig {
  StepLimits limits;  // limits.sequences is also the number of slots (SlotStart::slot)
  // Sampled ids are below this. A model's vocabulary may be padded beyond its tokenizer's, and the
  // padding rows are hardly trained. 0: the model's vocabulary size.
  int64_t vocab_size = 0;
  // With limits.adapters: for each LoRA adapter its inner columns in the model's stacked adapters.
  std::vector<AdapterColumns> adapters = {};
};

class ModelExecutor final : public StepExecutor {
 public:
  // groups: ranks that share the model by tensor parallelism, expert parallelism and pipeline
  // parallelism with one chunk per rank; nullptr: this rank has the whole model. The model must
  // have reserved limits.length positions.
  ModelExecutor(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
                const ExecutorConfig& config);

  // Runs one step. All ranks call it with the same plans and get the same result, sampling times
  // included. Only one rank samples, the first tensor-parallel rank of the last stage: exp() may
  // differ in the last bit between CPUs, so ranks that each sampled could diverge. The step's
  // sequences are divided into min(stages, sequences) micro-batches.
  //
  // On a GPU, passes over one token of each sequence are padded to batches of 1, 2, 4, 8 or a
  // multiple of 8, at most limits.sequences, recorded as CUDA graphs, and replayed. Not if ranks
  // share the model, the model has experts, or the Ctx has an observer or a synchronous GPU.
  StepOutput execute(const SchedulerOutput& plan) override;
  // Peak activation bytes of this rank in the largest steps within the limits. Only plans memory,
  // computes nothing. Pipeline stages may differ.
  int64_t largest_step_bytes();
  // False with other ranks, which a failure leaves in the middle of the step, and on a GPU, whose
  // results it leaves undefined.
  bool survives_failures() const override { return ctx_.gpu == nullptr && alone(); }

 private:
  using PassShape =
      std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool>>;

  bool alone() const;  // no other rank has a part of the model
  bool can_record() const;
  bool samples_there() const;
  int64_t padding_of(const SchedulerOutput& plan) const;
  void write_batches(const SchedulerOutput& plan);
  void run();
  const ArenaPlan& plan_for(const PassShape& shape);
  ArenaPlan planned_pass();
  enum class PlannedPast : uint8_t { kNone, kLongest, kChunkEnd };
  int64_t planned_past(int64_t new_tokens, PlannedPast past) const;
  std::vector<BlockTable> planned_tables(int64_t past, int64_t tokens) const;
  int64_t planned_bytes(const std::vector<int64_t>& shares, PlannedPast past);
  void run_planned(const ArenaPlan& plan);
  void pass();
  void read_logits(int micro_batch, int64_t first, std::span<const float> logits);
  void read_tokens(int micro_batch, int64_t first, std::span<const int32_t> ids,
                   std::span<const double> logprobs);
  void share_outcomes();
  void share_embeddings();
  void broadcast(std::vector<double>& message);
  // Number of top log-probabilities reported besides the token's own.
  int64_t logprobs_of(const LogitRow& row) const;
  StepOutput collect(const SchedulerOutput& plan);

  Ctx& ctx_;
  const Groups* groups_;
  const Model& model_;
  StepLimits limits_;
  DType params_dtype_;
  Sampler sampler_;
  BatchBuilder builder_;
  StepStage stage_;
  std::map<int, PipelineExecutor> executors_;   // several stages: by number of micro-batches
  int micro_batches_ = 1;                       // of the current step
  std::vector<std::vector<LogitRow>> rows_;     // of each micro-batch
  std::vector<std::vector<float>> embeddings_;  // of the plan's sequences that embed
  const SchedulerOutput* plan_ = nullptr;
  double total_sampling_seconds_ = 0;  // of the current step
  std::map<PassShape, ArenaPlan> plans_;
  int64_t reserved_ = 0;  // bytes of the arena
  // Recorded passes over one token of each sequence, by token count, StepBatch::max_context_len(),
  // which determines the grid of the kernels, and whether tokens are sampled on the GPU. Empty
  // until a key's second pass.
  std::map<std::tuple<int64_t, int64_t, bool>, cuda::Graph> graphs_;
  int64_t library_moves_ = 0;  // cuda::Context::library_moves when they were recorded
};

}  // namespace trireme
