#include "transformer/model.h"

#include "engine/ops/rotary.h"

namespace trireme {
Model::Model(const ModelConfig& config, DType dtype)
    : config_(config), embedding_(config, list_, 0) {
  const bool gpt2 = config.family == ModelFamily::kGpt2;
  for (int l = 0; l < static_cast<int>(config.num_layers); ++l) {
    const std::string prefix = concat(gpt2 ? "transformer.h." : "model.layers.", l);
    blocks_.emplace_back(config, list_, prefix, l + 1, l);
  }
  head_ = std::make_unique<LmHead>(config, list_, static_cast<int>(config.num_layers) + 1,
                                   config.tie_word_embeddings ? embedding_.token_table() : -1);
  if (config.family == ModelFamily::kLlama) {
    const DType table = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    const Shape shape{config.max_positions, config.head_dim};
    rotary_block_ = Buffer("rotary table", checked_mul(shape.numel(), dtype_size(table)));
    const Tensor cos_sin = rotary_block_.tensor(table, shape);
    rotary_table(cos_sin, config.rope_theta);
    cos_sin_ = cos_sin;
  }
}

void Model::train(Pass& pass, const Loss& loss, Recompute recompute,
                  const std::function<void(int)>& block_done) const {
  std::vector<Block::Saved> saved(blocks_.size());
  Activation x = embedding_.forward(pass);
  for (size_t l = 0; l < blocks_.size(); ++l)
    x = blocks_[l].forward(pass, std::move(x), cos_sin_, &saved[l], recompute);
  Activation dx = head_->loss_and_backward(pass, std::move(x), loss);
  block_done(static_cast<int>(blocks_.size()) + 1);
  for (size_t l = blocks_.size(); l-- > 0;) {
    Block::Deferred deferred;
    dx = blocks_[l].backward_input(pass, std::move(dx), cos_sin_, std::move(saved[l]), recompute,
                                   deferred);
    blocks_[l].backward_weight(pass, std::move(deferred));
    block_done(static_cast<int>(l) + 1);
  }
  embedding_.backward(pass, std::move(dx));
  block_done(0);
}

Activation Model::forward(Pass& pass) const {
  Activation x = embedding_.forward(pass);
  for (const Block& block : blocks_)
    x = block.forward(pass, std::move(x), cos_sin_, nullptr, Recompute::kNone);
  return x;
}

void Model::evaluate(Pass& pass, const Loss& loss) const { head_->loss(pass, forward(pass), loss); }

void Model::infer(Pass& pass, const Tensor& logits) const {
  head_->logits(pass, forward(pass), logits);
}

}  // namespace trireme
