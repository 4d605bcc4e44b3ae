// Decoder-only transformer over one ParameterStore, or the chunks of it on one pipeline rank.
//
// The hidden state between chunks is this rank's share of the residual stream, (T / split, C).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transformer/layers/embedding.h"
#include "transformer/layers/lm_head.h"
#include "transformer/layers/lora.h"
#include "transformer/model/stages.h"
#include "transformer/model/transformer_block.h"
#include "transformer/pass/float8_state.h"

namespace trireme {

class Model {
 public:
  // dtype: of parameters and activations. chunks: this rank's (transformer/model/stages.h). With
  // `lora` enabled, all parameters except the adapters' are frozen.
  Model(const ModelConfig& config, DType dtype, const Layout& layout,
        const std::vector<ChunkSpan>& chunks, const LoraConfig& lora = {});
  // The whole model on one rank.
  Model(const ModelConfig& config, DType dtype);

  const ModelConfig& config() const { return config_; }
  const ParameterList& parameters() const { return list_; }
  // Selection biases and loads of the experts; nullptr in a dense model. Training updates them, and
  // checkpoints hold them.
  RouterState* routers() const { return routers_.get(); }
  // Creates the state of FP8 training, which checkpoints also hold. float8() is nullptr before.
  void use_float8(const Float8Config& config);
  Float8State* float8() const { return float8_.get(); }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  const ChunkSpan& span(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  bool has_head(int chunk) const { return span(chunk).head; }

  // Rotary table, float32 (float64 when computing in float64), with a row for each position; a
  // second one if layers with a window have their own frequencies, or queries a factor that depends
  // on their position. reserve_positions() creates or enlarges it before the passes that need it: a
  // pass whose Tokens::position_end is beyond the table throws Error. position_bytes(): size in
  // bytes, 0 with learned positions. With dynamic scaling or longrope (transformer/config/rope.h)
  // the frequencies depend on the reserved length, so that enlarging the table may change every
  // row: keys cached before become invalid.
  int64_t position_bytes(int64_t positions) const;
  void reserve_positions(Ctx& ctx, int64_t positions);

  struct Saved {
    std::vector<TransformerBlock::Saved> blocks;
  };
  struct Deferred {
    std::vector<TransformerBlock::Deferred> blocks;
    Activation d_embedding;
  };
  // Called with the number of a parameter block when its gradients of this micro-batch are
  // complete.
  using StoreBlockDone = std::function<void(int)>;

  // Runs the chunk's embedding, if it has one (x is then absent), and its blocks. saved == nullptr:
  // keeps nothing.
  Activation forward(Pass& pass, int chunk, Activation x, Saved* saved, Recompute recompute) const;
  // Returns dx, absent if the chunk has the embedding. The weight gradients stay pending in
  // `deferred` until backward_weight().
  Activation backward_input(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                            Deferred& deferred) const;
  void backward_weight(Pass& pass, int chunk, Deferred deferred, const StoreBlockDone& done) const;
  // backward_input() and backward_weight(), block by block, so that few gradients are pending.
  // Returns dx as backward_input() does.
  Activation backward(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                      const StoreBlockDone& done) const;

  // Adds the loss of x, the last chunk's output, to loss.sum.
  void loss(Pass& pass, Activation x, const Loss& loss) const;
  // The same, and returns the gradient of x and writes those of the head's parameters.
  Activation loss_and_backward(Pass& pass, Activation x, const Loss& loss,
                               const StoreBlockDone& done) const;
  // Computes logits (R, V), float32 (float64 in a float64 model), from x, the last chunk's output,
  // for the tokens `rows` (R) int32, or without rows for the last R tokens; on every
  // tensor-parallel rank.
  void logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
              const ConstTensor& rows = {}) const;
  // Hidden states after the final norm, of the tokens `rows` (R) int32: out (R, C) of x's dtype, on
  // every tensor-parallel rank.
  void hidden(Pass& pass, const ConstTensor& x, const Tensor& out, const ConstTensor& rows) const;

 private:
  int last_layer_block() const;  // of the chunk with the head; -1: it has no layers
  // Rotary tables, checked to cover the pass's positions; without data in a planning run.
  ConstTensor rotary_rows(const Pass& pass) const;
  // Factors of the queries' table at each of the first `positions` positions, times `factor`.
  std::vector<double> query_factors(int64_t positions, double factor) const;
  // Rotary table (P, D) of a layer, or (2, P, D) if queries use their own, the second; absent if
  // the layer uses none. Without rotary positions but with scaled queries: their factors alone.
  ConstTensor rotary_of(const ConstTensor& tables, size_t layer, int chunk) const;
  struct Layer {
    TransformerBlock block;
    int number;  // number of its parameter block
  };
  ModelConfig config_;
  bool adapted_ = false;
  ParameterList list_;
  std::vector<ChunkSpan> chunks_;
  std::vector<std::vector<Layer>> layers_;  // of each chunk
  std::unique_ptr<Embedding> embedding_;    // on the rank of the first chunk
  std::unique_ptr<LmHead> head_;            // on the rank of the last chunk
  int head_block_ = -1;
  std::unique_ptr<RouterState> routers_;
  std::unique_ptr<Float8State> float8_;
  DType table_dtype_ = DType::kF32;
  Buffer rotary_block_;
  // (K, P, D): K rotary_tables(), P the reserved positions, D rotary_width(). Absent before
  // reserve_positions() and without rotary embedding.
  ConstTensor cos_sin_;
};

// Returns whether the model has a layer that these adapters (transformer/layers/lora.h) target.
bool has_targets(const ModelConfig& config, const LoraConfig& lora);

// Parameters of the whole model, counted in the list that Model builds.
struct ParameterCounts {
  int64_t all = 0;
  int64_t active = 0;  // per token: of a layer's routed experts only the k that the token visits
};
ParameterCounts count_parameters(const ModelConfig& config);
int64_t parameter_count(const ModelConfig& config);  // all

}  // namespace trireme
