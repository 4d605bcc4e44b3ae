#include "transformer/layers/embedding.h"

#include "engine/ops/quantized/quantized_weight.h"
#include "transformer/families/family.h"

namespace trireme {

ParameterSpec embedding_table(const ModelConfig& config, const Layout& layout, int block,
                              int copies, int copy) {
  const DimSlice rows = even_slice(config.vocab_size, layout.tp);
  return {.name = concat(parameter_names(config).token_embedding, ".weight"),
          .shape = Shape{config.vocab_size, config.hidden_size},
          .box = box_of(rows, whole_slice(config.hidden_size)),
          .init = InitKind::kNormal,
          .init_std = config.initializer_range,
          .decay = true,
          .block = block,
          .partial = copies > 1 ? PartialSum::kTiedStages : PartialSum::kNone,
          .head = config.tie_word_embeddings,
          .copies = copies,
          .copy = copy};
}

Embedding::Embedding(const ModelConfig& config, const Layout& layout, ParameterList& list,
                     int block, bool shared)
    : width_(config.hidden_size),
      dropout_(config.embedding_dropout),
      scale_(config.embedding_scale),
      rounding_(config.exact_embedding_scale ? FactorRounding::kProduct : FactorRounding::kTensor) {
  const DimSlice rows = even_slice(config.vocab_size, layout.tp);
  shard_ = {rows.begin, config.vocab_size};
  tokens_ = list.add(embedding_table(config, layout, block, shared ? 2 : 1, 0));
  if (!config.learned_positions) return;
  const DimSlice positions = replicated_slice(config.max_positions, layout);
  positions_ = list.add({.name = concat(parameter_names(config).position_embedding, ".weight"),
                         .shape = Shape{config.max_positions, width_},
                         .init = InitKind::kNormal,
                         .init_std = config.initializer_range,
                         .decay = true,
                         .block = block,
                         .partial = positions.partial,
                         .copies = positions.copies,
                         .copy = positions.copy});
}

bool Embedding::drops(const Pass& pass) const {
  return dropout_ > 0 && pass.ctx.mode == Mode::kTrain;
}

Activation Embedding::forward(Pass& pass) const {
  Ctx& ctx = pass.ctx;
  Activation y =
      ctx.allocate("embedding", pass.params.dtype(), Shape{pass.residual_rows(), width_});
  sum_over_tensor_ranks(pass, y, [&](const Tensor& out) {
    if (pass.params.in_blocks(tokens_))
      embedding_forward_blocks(ctx, out, pass.params.quantized_matrices(tokens_, tokens_).front(),
                               pass.tokens.ids, shard_);
    else
      embedding_forward(ctx, out, pass.params.value(tokens_), pass.tokens.ids, false, shard_);
  });
  if (scale_ != 1) scale(ctx, y, y, scale_, rounding_);
  if (positions_ >= 0)
    embedding_forward(ctx, y, pass.params.value(positions_),
                      pass.residual_part(pass.tokens.positions), true);
  if (drops(pass))
    dropout(ctx, y, y, {}, pass.residual_part(pass.tokens.global_index), dropout_,
            pass.dropout_key("embedding_dropout", 0));
  ctx.tap("embedding", y);
  return y;
}

void Embedding::backward(Pass& pass, Activation dy) const {
  Ctx& ctx = pass.ctx;
  if (!pass.params.trained(tokens_)) return;
  if (drops(pass))
    dropout(ctx, dy, dy, {}, pass.residual_part(pass.tokens.global_index), dropout_,
            pass.dropout_key("embedding_dropout", 0));
  if (positions_ >= 0) {
    const GradientSlot d_positions = pass.params.gradient(positions_);
    embedding_backward(ctx, d_positions.grad, dy, pass.residual_part(pass.tokens.positions),
                       d_positions.accumulate);
  }
  if (scale_ != 1) scale(ctx, dy, dy, scale_, rounding_);
  const GradientSlot d_tokens = pass.params.gradient(tokens_);
  {
    const AllTokens all = gather_tokens(pass, dy);
    embedding_backward(ctx, d_tokens.grad, all, pass.tokens.ids, d_tokens.accumulate, shard_);
  }
}

}  // namespace trireme
