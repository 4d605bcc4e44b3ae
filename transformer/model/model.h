// The decoder, or the chunks of it that one rank of a pipeline holds, over one ParameterStore.
//
// The hidden state between chunks is this rank's share of the residual stream, (T / split, C).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transformer/layers/embedding.h"
#include "transformer/layers/lm_head.h"
#include "transformer/model/block.h"
#include "transformer/model/stages.h"
#include "transformer/pass/float8_state.h"

namespace trireme {

class Model {
 public:
  // dtype: of parameters and activations. chunks: this rank's (transformer/model/stages.h).
  // lora: adapters, beside which everything else is frozen.
  Model(const ModelConfig& config, DType dtype, const Layout& layout,
        const std::vector<ChunkSpan>& chunks, const LoraConfig& lora = {});
  // The whole model on one rank.
  Model(const ModelConfig& config, DType dtype);

  const ModelConfig& config() const { return config_; }
  const ParameterList& parameters() const { return list_; }
  // Selection biases and loads of experts; nullptr in a dense model. They change in training and
  // belong to what a checkpoint holds.
  RouterState* routers() const { return routers_.get(); }
  // Makes the state of training in 8-bit floats; nullptr before. It belongs to a checkpoint too.
  void use_float8(const Float8Config& config);
  Float8State* float8() const { return float8_.get(); }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  const ChunkSpan& span(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  bool has_head(int chunk) const { return span(chunk).head; }

  // The rotary table, float32 (float64 when computing in float64), with a row for each position.
  // reserve_positions() makes it or makes it larger, before the passes that need it: one whose
  // Tokens::position_end is beyond the table is an error. position_bytes(): its size, 0 without
  // rotary embedding. Layers with a window may have frequencies of their own, and a table. With
  // dynamic scaling (transformer/config/rope.h) the frequencies are those for the length that is
  // reserved, so that making the table larger changes every row: keys in a cache are then of no
  // use.
  int64_t position_bytes(int64_t positions) const;
  void reserve_positions(Ctx& ctx, int64_t positions);

  struct Saved {
    std::vector<Block::Saved> blocks;
  };
  struct Deferred {
    std::vector<Block::Deferred> blocks;
    Activation d_embedding;
  };
  // Called with the number of a parameter block when its gradients of this micro-batch are
  // complete.
  using BlockDone = std::function<void(int)>;

  // The chunk's blocks, after the embedding where it has it (then x is not given). saved may be
  // null:
  // nothing is kept.
  Activation forward(Pass& pass, int chunk, Activation x, Saved* saved, Recompute recompute) const;
  // dy -> dx, absent where the chunk has the embedding. The gradients of weights wait in
  // `deferred`.
  Activation backward_input(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                            Deferred& deferred) const;
  void backward_weight(Pass& pass, int chunk, Deferred deferred, const BlockDone& done) const;
  // Both, block by block, so that little waits.
  Activation backward(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                      const BlockDone& done) const;

  // The last chunk's output to the loss, added to loss.sum.
  void loss(Pass& pass, Activation x, const Loss& loss) const;
  // The same and the gradient of x; writes the gradients of the head.
  Activation loss_and_backward(Pass& pass, Activation x, const Loss& loss,
                               const BlockDone& done) const;
  // The last chunk's output x to logits (R, V) float32 of R tokens: those of `rows` (R) int32, or
  // the last ones; on every tensor-parallel rank.
  void logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
              const ConstTensor& rows = {}) const;
  // What the head takes of them, behind the final norm: out (R, C) of x's dtype.
  void hidden(Pass& pass, const ConstTensor& x, const Tensor& out, const ConstTensor& rows) const;

 private:
  int last_layer_block() const;  // of the chunk with the head; -1: it has no layers
  // The rotary tables, which must reach the pass's positions; fake ones when planning.
  ConstTensor rotary_rows(const Pass& pass) const;
  // A layer's one of them.
  ConstTensor rotary_of(const ConstTensor& tables, size_t layer, int chunk) const;
  struct Layer {
    Block block;
    int number;  // of its parameter block
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
  // (K, P, D): K rotary_tables(), P the reserved positions, D rotary_width(); absent before and
  // without rotary embedding.
  ConstTensor cos_sin_;
};

// Whether the model has a layer that such adapters (transformer/layers/lora.h), of whatever rank,
// are for.
bool has_targets(const ModelConfig& config, const LoraConfig& lora);

// Parameters of the whole model.
int64_t parameter_count(const ModelConfig& config);

}  // namespace trireme
