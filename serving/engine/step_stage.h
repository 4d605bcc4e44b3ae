// Pipeline stage of inference: runs a rank's part of the model on the micro-batches of a step, with
// the rank's KV cache.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "serving/engine/step_batch.h"
#include "transformer/model/model.h"

namespace trireme {

// Tokens of a block of the KV cache, at most `most`, so that no chunk of attention ends inside one.
inline int64_t kv_block_tokens(const ModelConfig& config, int64_t most = 16) {
  return std::gcd(most, config.attention_chunk);
}
// Bytes on this rank of a block of block_tokens tokens in a cache with these groups of layers
// (StepLimits::windows).
int64_t kv_block_bytes(const Model& model, const KvType& type, const Groups* groups,
                       int64_t block_tokens, std::span<const int64_t> windows);

class StepStage final : public PipelineStage {
 public:
  // Receives the logits (rows, V) of consecutive rows of a micro-batch, starting with row `first`,
  // on the host. They are valid only during the call.
  using Reader = std::function<void(int micro_batch, int64_t first, std::span<const float> logits)>;
  // Receives sampled tokens (rows) and their log-probabilities (rows) instead of the logits, if the
  // batch has sampling parameters.
  using TokenReader =
      std::function<void(int micro_batch, int64_t first, std::span<const int32_t> ids,
                         std::span<const double> logprobs)>;
  // Copies at most logit_rows rows of logits to the host at a time; at least limits.sequences. The
  // GPU samples ids below `choices`.
  StepStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
            const StepLimits& limits, int micro_batches, int64_t logit_rows, Reader reader,
            int64_t choices, TokenReader token_reader);

  // Batch of micro-batch m, to be written before the pass.
  StepBatch& batch(int m) { return batches_[static_cast<size_t>(m)]; }
  const StepBatch& batch(int m) const { return batches_[static_cast<size_t>(m)]; }
  int64_t logit_rows() const { return logit_rows_; }
  // To be called instead of forward() after replaying a recorded pass over micro-batch 0.
  void replayed() { pending_ = {0, 0, batch(0).row_count(), batch(0).samples()}; }
  // Ends the pass: reads the remaining logits and waits until embeddings are on the host.
  void end();
  // Embedding i of micro-batch m, (C). Only after end(), on the stage with the head.
  std::vector<float> embedding(int m, int64_t i) const;
  // To be called instead of end() after a pass that threw: drops its unread logits.
  void abandon() { pending_ = {}; }

  // Returns the hidden states for the next stage; empty on the stage with the head. On a GPU,
  // queues work on the main stream without waiting, unless logits of an earlier micro-batch or of
  // earlier rows must be read first. The two backward functions must not be called.
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation allocate_message(int chunk, int micro_batch, bool gradient) override;
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
  // (logit_rows, V) on the host of the stage with the head: float64 for a float64 model, else
  // float32.
  Tensor logits_;
  std::vector<float> narrow_;  // logits of a float64 model as float32
  // (sequences, C) per micro-batch on the host, in the model's dtype.
  std::vector<Buffer> embeddings_;
  struct Pending {
    int micro_batch = 0;
    int64_t first = 0, rows = 0;
    bool sampled = false;
  } pending_;  // computed, not read yet
  int64_t choices_;
  TokenReader token_reader_;
  Buffer tokens_data_;  // GPU only: log-probabilities and ids of logit_rows rows, on the host
  Tensor sampled_logprobs_, sampled_ids_;
};

}  // namespace trireme
