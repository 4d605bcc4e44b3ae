// Pipeline stages of one rank: TrainStage (forward and backward) and EvalStage (forward only). They
// run this rank's chunks of the model on one micro-batch at a time, in the order of a schedule.
#pragma once

#include <functional>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "training/step/device_batches.h"
#include "transformer/model/model.h"

namespace trireme {

class TrainStage final : public PipelineStage {
 public:
  struct Options {
    Recompute recompute = Recompute::kNone;
    int64_t micro_batches = 1;  // per step
    int64_t sequence_length = 0;
    // The schedule runs backward of inputs and of weights at different times (zero bubble). If
    // false, both are computed block by block, which keeps less memory.
    bool split_backward = false;
    const PreferenceConfig* preferences = nullptr;  // loss of preference pairs; null: of tokens
  };
  // All arguments must outlive this object.
  TrainStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
             const Options& options);

  // Begins a step. batches: this rank's shards of the step's micro-batches; must outlive the step.
  // loss: tensors to which the losses are added. block_done(b, last): called when the gradients of
  // store block b include one more micro-batch; last: they include all of them.
  using StoreBlockDone = std::function<void(int block, bool last)>;
  void begin(const std::vector<MicroBatch>& batches, const Loss& loss, StoreBlockDone block_done);

  // Sums over the preference pairs of the step so far; only on ranks with the head.
  const PreferenceSums& preferences() const { return preferences_; }

  // Hidden states are (T / split, C): this rank's tokens of the residual stream, with `split` the
  // size of Layout::token_split() (parallel/layout.h). The chunk with the head, which computes the
  // loss, returns nothing from forward() and keeps its output for backward.
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;
  Activation allocate_message(int chunk, int micro_batch, bool gradient) override;

  // Capture of a CUDA graph (training/step/micro_batch_graphs.h). Between begin_recording() and
  // end_recording() passes read tokens from the fixed buffer, and store blocks with complete
  // gradients are recorded, without calling block_done. For each replay the caller first calls
  // copy_to_fixed_buffer() and afterwards count_blocks() with the blocks of end_recording().
  Tokens tokens(int micro_batch) const { return batches_.tokens(micro_batch); }
  const void* fixed_buffer() const { return batches_.fixed_buffer(); }
  void copy_to_fixed_buffer(int micro_batch) const { batches_.fix(micro_batch); }
  void begin_recording() { recording_ = true; }
  std::vector<int> end_recording();
  void count_blocks(const std::vector<int>& blocks) const;

 private:
  struct Work {  // data between forward and backward of one chunk and micro-batch
    Model::Saved saved;
    Model::Deferred deferred;
    Activation output;  // only of the chunk with the head
  };
  Work& work(int chunk, int micro_batch);
  Activation head_gradient(Pass& pass, int micro_batch, Work& work);
  template <class Run>
  auto with_pass(int micro_batch, const Run& run);
  const Model& model_;
  ParameterStore& store_;
  const Groups& groups_;
  Ctx& ctx_;
  Options options_;
  DeviceBatches batches_;
  Loss loss_;
  StoreBlockDone block_done_;
  Model::StoreBlockDone count_block_;
  std::vector<int64_t> passes_left_;  // by store block: micro-batches whose gradients are missing
  std::vector<Work> work_;            // by (chunk, micro-batch)
  PreferenceSums preferences_;
  bool recording_ = false;
  std::vector<int> recorded_blocks_;
};

// Forward only. Ranks with the head add to loss.sum and write the loss of every token to
// token_losses, one tensor per micro-batch.
class EvalStage final : public PipelineStage {
 public:
  EvalStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
            int64_t sequence_length)
      : model_(model),
        store_(store),
        groups_(groups),
        ctx_(ctx),
        batches_(ctx, sequence_length, model.config().attention_chunk) {}
  void begin(const std::vector<MicroBatch>& batches, const Loss& loss,
             std::vector<Tensor> token_losses) {
    batches_.place(batches);
    loss_ = loss;
    token_losses_ = std::move(token_losses);
  }
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;
  Activation allocate_message(int chunk, int micro_batch, bool gradient) override;

 private:
  const Model& model_;
  ParameterStore& store_;
  const Groups& groups_;
  Ctx& ctx_;
  DeviceBatches batches_;
  Loss loss_;
  std::vector<Tensor> token_losses_;
};

}  // namespace trireme
