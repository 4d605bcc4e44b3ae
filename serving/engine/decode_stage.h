// What a rank computes for new tokens of one text: its part of the model, behind what its cache holds.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "serving/engine/decode_inputs.h"
#include "transformer/model.h"

namespace trireme {

class DecodeStage final : public PipelineStage {
 public:
  // Of a text of at most max_tokens, of which at most most_new come at a time. paged: PagedKvCache.
  DecodeStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
              int64_t max_tokens, int64_t most_new, bool paged);

  // Ids whose hidden states pass through this rank next.
  void begin(std::span<const int32_t> ids) { inputs_.write(ctx_, ids, past_); }
  // After the pass. Waits for it on the rank that has the head.
  void end();
  // Of the last id, (V), on the rank that has the head; until the next pass.
  std::span<const float> logits() const;

  // On a GPU it queues its work on the main stream and waits for nothing, and what it queues is the same for
  // every pass over one token.
  Activation forward(int chunk, int micro_batch, Activation x) override;
  Activation allocate_hidden(int chunk, int micro_batch, bool gradient) override;
  Activation backward_input(int chunk, int micro_batch, Activation dy) override;
  void backward_weight(int chunk, int micro_batch) override;

 private:
  std::unique_ptr<KvCache> make_cache(int64_t max_tokens, bool paged) const;

  const Model& model_;
  ParameterStore& params_;
  Ctx& ctx_;
  const Groups* groups_;
  DecodeInputs inputs_;
  std::unique_ptr<KvCache> cache_;
  int64_t past_ = 0;  // tokens of the passes that have ended
  Tensor logits_;  // (1, V) on the host where the head is, float32, or float64 of a float64 model
  Buffer logits_data_;
  std::vector<float> narrow_;  // (V) of a float64 model
};

}  // namespace trireme
