// Computation of one rank in a training step or an evaluation: its chunks of the model, for one
// micro-batch at a time, in the order of a schedule.
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
    // The schedule computes gradients of inputs and weights at different times. Otherwise both are
    // computed block by block, so that little memory is kept.
    bool split_backward = false;
    const PreferenceConfig* preferences = nullptr;  // trains on preferences instead of tokens
  };
  // All arguments must outlive this object.
  TrainStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
             const Options& options);

  // batches: the step's micro-batches, reduced to this rank's part. loss: destination of the loss.
  // block_done(b, last): parameter block b has the gradients of one more micro-batch; last: of the
  // final one.
  using StoreBlockDone = std::function<void(int block, bool last)>;
  void begin(const std::vector<MicroBatch>& batches, const Loss& loss, StoreBlockDone block_done);

  // Sums over the pairs of the step so far, on ranks with the head.
  const PreferenceSums& preferences() const { return preferences_; }

  // The hidden state is this rank's share of the residual stream, (T / split, C). The last chunk of
  // the model, where the loss is computed, keeps its output for backward.
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;
  Activation allocate_hidden(int chunk, int micro_batch, bool gradient) override;

  // Capture of work that is replayed on a GPU. Between begin_recording() and end_recording() passes
  // read their tokens from the fixed place, and blocks whose gradients are done are listed, not
  // counted. The caller of a replay copies a micro-batch to the fixed place before it, and counts
  // the blocks after it.
  Tokens tokens(int micro_batch) const { return batches_.tokens(micro_batch); }
  const void* fixed_place() const { return batches_.fixed_place(); }
  void copy_to_fixed_place(int micro_batch) const { batches_.fix(micro_batch); }
  void begin_recording() { recording_ = true; }
  std::vector<int> end_recording();
  void count_blocks(const std::vector<int>& blocks) const;

 private:
  struct Work {  // of one chunk and micro-batch
    Model::Saved saved;
    Model::Deferred deferred;
    Activation output;  // of the last chunk
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
  std::vector<int64_t> passes_left_;  // by parameter block: micro-batches still to come
  std::vector<Work> work_;            // by (chunk, micro-batch)
  PreferenceSums preferences_;
  bool recording_ = false;
  std::vector<int> recorded_blocks_;
};

// Forward only: adds to loss.sum on ranks with the head and keeps nothing for backward.
// token_losses: per micro-batch, destination of the losses of its tokens.
class EvalStage final : public PipelineStage {
 public:
  EvalStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
            int64_t sequence_length)
      : model_(model), store_(store), groups_(groups), ctx_(ctx), batches_(ctx, sequence_length) {}
  void begin(const std::vector<MicroBatch>& batches, const Loss& loss,
             std::vector<Tensor> token_losses) {
    batches_.place(batches);
    loss_ = loss;
    token_losses_ = std::move(token_losses);
  }
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;
  Activation allocate_hidden(int chunk, int micro_batch, bool gradient) override;

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
