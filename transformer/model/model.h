// Decoder model over one ParameterStore, or the chunks of it that one pipeline rank holds.
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
  // dtype: of parameters and activations. chunks: this rank's (transformer/model/stages.h). lora:
  // adapters; with adapters everything else is frozen.
  Model(const ModelConfig& config, DType dtype, const Layout& layout,
        const std::vector<ChunkSpan>& chunks, const LoraConfig& lora = {});
  // The whole model on one rank.
  Model(const ModelConfig& config, DType dtype);

  const ModelConfig& config() const { return config_; }
  const ParameterList& parameters() const { return list_; }
  // Selection biases and loads of the experts; nullptr in a dense model. Training changes them, and
  // checkpoints hold them.
  RouterState* routers() const { return routers_.get(); }
  // Creates the state of FP8 training, which checkpoints hold too. Before, float8() is nullptr.
  void use_float8(const Float8Config& config);
  Float8State* float8() const { return float8_.get(); }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  const ChunkSpan& span(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  bool has_head(int chunk) const { return span(chunk).head; }

  // Rotary table, float32 (float64 when computing in float64), with a row for each position; a
  // second one where layers with a window have their own frequencies. reserve_positions() creates
  // or enlarges it before the passes that need it: a pass whose Tokens::position_end is beyond the
  // table is an error. position_bytes(): its size, 0 without rotary embedding. With dynamic scaling
  // (transformer/config/rope.h) the frequencies depend on the reserved length, so that enlarging
  // the table changes every row: keys cached before become invalid.
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

  // Runs the chunk's embedding, where it has it (then x is absent), and its blocks. saved ==
  // nullptr: keeps nothing.
  Activation forward(Pass& pass, int chunk, Activation x, Saved* saved, Recompute recompute) const;
  // dy -> dx, absent where the chunk has the embedding. The weight gradients stay pending in
  // `deferred`.
  Activation backward_input(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                            Deferred& deferred) const;
  void backward_weight(Pass& pass, int chunk, Deferred deferred, const StoreBlockDone& done) const;
  // Both, block by block, so that few weight gradients are pending at a time.
  Activation backward(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                      const StoreBlockDone& done) const;

  // Adds the loss of x, the last chunk's output, to loss.sum.
  void loss(Pass& pass, Activation x, const Loss& loss) const;
  // The same plus the gradient of x; writes the gradients of the head.
  Activation loss_and_backward(Pass& pass, Activation x, const Loss& loss,
                               const StoreBlockDone& done) const;
  // logits (R, V) float32 from x, the last chunk's output, for the tokens `rows` (R) int32, or
  // without rows for the last R tokens; on every tensor-parallel rank.
  void logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
              const ConstTensor& rows = {}) const;
  // Final hidden states of the tokens `rows`, after the final norm: out (R, C) of x's dtype.
  void hidden(Pass& pass, const ConstTensor& x, const Tensor& out, const ConstTensor& rows) const;

 private:
  int last_layer_block() const;  // of the chunk with the head; -1: it has no layers
  // Rotary tables, checked to cover the pass's positions; placeholders without data in a planning
  // run.
  ConstTensor rotary_rows(const Pass& pass) const;
  // Factors of the queries' table at each of the first `positions` positions, times `factor`.
  std::vector<double> query_factors(int64_t positions, double factor) const;
  // Rotary table of a layer; absent where positions do not rotate it. (2, P, D) where queries have
  // one of their own, the second.
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
  std::unique_ptr<Embedding> embedding_;    // where this rank has it
  std::unique_ptr<LmHead> head_;
  int head_block_ = -1;
  std::unique_ptr<RouterState> routers_;
  std::unique_ptr<Float8State> float8_;
  DType table_dtype_ = DType::kF32;
  Buffer rotary_block_;
  // (K, P, D): K rotary_tables(), P the reserved positions, D rotary_width(). Absent before
  // reserve_positions() and without rotary embedding.
  ConstTensor cos_sin_;
};

// Returns whether the model has a layer that these adapters (transformer/layers/lora.h) target, for
// any rank.
bool has_targets(const ModelConfig& config, const LoraConfig& lora);

// Parameters of the whole model, counted in the list that Model builds.
struct ParameterCounts {
  int64_t all = 0;
  int64_t active = 0;  // of a token's pass: from a layer's experts the k that the token visits
};
ParameterCounts count_parameters(const ModelConfig& config);
int64_t parameter_count(const ModelConfig& config);  // all

}  // namespace trireme
