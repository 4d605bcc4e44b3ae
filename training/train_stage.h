// What one rank computes of a training step: its chunks of the model, for one micro-batch at a time, in
// whatever order a schedule asks for.
#pragma once

#include <functional>
#include <vector>

#include "training/data/batch_source.h"
#include "transformer/model.h"

namespace trireme {

class TrainStage {
 public:
  struct Options {
    Recompute recompute = Recompute::kNone;
    int64_t micro_batches = 1;  // of a step
  };
  // groups may be null: one rank. Everything must outlive this object.
  TrainStage(const Model& model, ParameterStore& store, const Groups* groups, Ctx& ctx,
             const Options& options);

  // The step's micro-batches, already this rank's part of them, and where the loss goes.
  // block_ready(b): the gradients of parameter block b are complete for the step.
  void begin(const std::vector<MicroBatch>& batches, const Loss& loss,
             std::function<void(int)> block_ready);

  // The hidden state enters and leaves (T / split, C): absent at the first chunk's input. The last
  // chunk keeps its output for backward, where the loss is computed.
  Activation forward(int chunk, int micro_batch, Activation x);
  // dy is absent at the last chunk, the result at the first.
  Activation backward_input(int chunk, int micro_batch, Activation dy);
  void backward_weight(int chunk, int micro_batch);
  Activation backward(int chunk, int micro_batch, Activation dy);

 private:
  struct Work {  // of one chunk and micro-batch
    Model::Saved saved;
    Model::Deferred deferred;
    Activation output;  // of the last chunk
  };
  Work& work(int chunk, int micro_batch);
  Activation head_gradient(Pass& pass, Work& work);
  template <class Run>
  auto with_pass(int micro_batch, const Run& run);
  const Model& model_;
  ParameterStore& store_;
  const Groups* groups_;
  Ctx& ctx_;
  Options options_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  Loss loss_;
  std::function<void(int)> block_ready_;
  Model::BlockDone count_block_;
  std::vector<int64_t> passes_left_;  // of each parameter block, micro-batches to come
  std::vector<Work> work_;            // (chunk, micro-batch)
};

// Views of a micro-batch's arrays.
Tokens tokens_of(const MicroBatch& batch);

}  // namespace trireme
