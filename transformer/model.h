// The whole decoder: embedding, blocks, head, over one ParameterStore.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transformer/block.h"
#include "transformer/embedding.h"
#include "transformer/lm_head.h"

namespace trireme {

class Model {
 public:
  // dtype: of parameters and activations.
  Model(const ModelConfig& config, DType dtype);

  const ModelConfig& config() const { return config_; }
  const ParameterList& parameters() const { return list_; }
  int blocks() const { return static_cast<int>(blocks_.size()) + 2; }  // with embedding and head

  // Forward and backward of one micro-batch: adds to loss.sum, writes (or adds to) the gradients.
  // block_done(b) is called when the gradients of parameter block b are complete for this
  // micro-batch, head first, embedding last.
  void train(Pass& pass, const Loss& loss, Recompute recompute,
             const std::function<void(int)>& block_done) const;
  // Loss only.
  void evaluate(Pass& pass, const Loss& loss) const;
  // logits (R, V) float32 of the last R tokens; pass.cache, if any, is appended to.
  void infer(Pass& pass, const Tensor& logits) const;

 private:
  Activation forward(Pass& pass) const;  // embedding and blocks, nothing saved
  ModelConfig config_;
  ParameterList list_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::unique_ptr<LmHead> head_;
  Buffer rotary_block_;
  ConstTensor cos_sin_;  // (P, D), absent without rotary embedding
};

}  // namespace trireme
