// A rank's part of the model over the micro-batches of a step, behind what its KV cache holds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "serving/engine/step_batch.h"
#include "transformer/model/model.h"

namespace trireme {

// Bytes of the keys and values of block_tokens tokens on this rank.
int64_t kv_block_bytes(const Model& model, const KvType& type, const Groups* groups,
                       int64_t block_tokens);

class StepStage final : public PipelineStage {
 public:
  // Given logits of rows of a micro-batch, from number `first` of its rows on, where they are on
  // the host.
  using Reader = std::function<void(int micro_batch, int64_t first, std::span<const float> logits)>;
  // Given the tokens of rows in the place of their logits, where the batch has parameters for that.
  using TokenReader =
      std::function<void(int micro_batch, int64_t first, std::span<const int32_t> ids,
                         std::span<const double> logprobs)>;
  // Logits come to the host `logit_rows` at a time. Tokens are chosen of ids below `choices`.
  StepStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
            const StepLimits& limits, int micro_batches, int64_t logit_rows, Reader reader,
            int64_t choices, TokenReader token_reader);

  // Micro-batch m of the step that comes. Before the pass.
  StepBatch& batch(int m) { return batches_[static_cast<size_t>(m)]; }
  const StepBatch& batch(int m) const { return batches_[static_cast<size_t>(m)]; }
  int64_t logit_rows() const { return logit_rows_; }  // that come to the host at a time
  // A recorded pass over micro-batch 0 has been queued again, in the place of forward().
  void replayed() { pending_ = {0, 0, batch(0).row_count(), batch(0).samples()}; }
  // After the pass: all logits are read, and what is embedded has come to the host.
  void end();
  // Then, where the head is: number i of what micro-batch m embeds (C).
  std::vector<float> embedding(int m, int64_t i) const;
  // In the place of end(), of a pass that has not come to its own: nothing of it is read.
  void abandon() { pending_ = {}; }

  // On a GPU it queues its work on the main stream and waits for nothing, unless logits of an
  // earlier micro-batch or of earlier rows are to be read first.
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation allocate_hidden(int chunk, int micro_batch, bool gradient) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;

 private:
  void make_cache(const StepLimits& limits);
  void compute_logits(Pass& pass, int micro_batch, const ConstTensor& x);
  void compute_embeddings(Pass& pass, int micro_batch, const ConstTensor& x);
  void sample(const Tensor& logits, const StepBatch& batch, int64_t first);
  void read_pending();

  const Model& model_;
  ParameterStore& params_;
  Ctx& ctx_;
  const Groups* groups_;
  int64_t logit_rows_;
  Reader reader_;
  std::vector<StepBatch> batches_;
  std::unique_ptr<KvCache> cache_;
  Buffer logits_data_;
  Tensor logits_;              // (logit_rows, V) on the host where the head is: float32, or float64
  std::vector<float> narrow_;  // of a float64 model
  std::vector<Buffer>
      embeddings_;  // (sequences, C) of each micro-batch on the host, in the model's dtype
  struct Pending {
    int micro_batch = 0;
    int64_t first = 0, rows = 0;
    bool sampled = false;
  } pending_;  // computed, not read yet
  int64_t choices_;
  TokenReader token_reader_;
  Buffer tokens_data_;  // of a GPU, on the host: log-probabilities and ids of logit_rows
  Tensor sampled_logprobs_, sampled_ids_;
};

}  // namespace trireme
