#include "transformer/embedding.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"

namespace trireme {

Embedding::Embedding(const ModelConfig& config, ParameterList& list, int block)
    : width_(config.hidden_size), dropout_(config.embedding_dropout) {
  const bool gpt2 = config.family == ModelFamily::kGpt2;
  const auto table = [&](const char* name, int64_t rows) {
    return list.add({.name = name,
                     .shape = Shape{rows, width_},
                     .init = InitKind::kNormal,
                     .init_std = config.initializer_range,
                     .decay = true,
                     .block = block});
  };
  tokens_ = table(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", config.vocab_size);
  if (gpt2) positions_ = table("transformer.wpe.weight", config.max_positions);
}

bool Embedding::drops(const Pass& pass) const {
  return dropout_ > 0 && pass.ctx.mode == Mode::kTrain;
}

Activation Embedding::forward(Pass& pass) const {
  Ctx& ctx = pass.ctx;
  Activation y = ctx.allocate("embedding", pass.params.dtype(), Shape{pass.tokens.count, width_});
  embedding_forward(ctx, y, pass.params.value(tokens_), pass.tokens.ids, false);
  if (positions_ >= 0)
    embedding_forward(ctx, y, pass.params.value(positions_), pass.tokens.positions, true);
  if (drops(pass))
    dropout(ctx, y, y, {}, pass.tokens.rows, dropout_, pass.dropout_key("embedding_dropout", 0));
  ctx.tap("embedding", y);
  return y;
}

void Embedding::backward(Pass& pass, Activation dy) const {
  Ctx& ctx = pass.ctx;
  if (drops(pass))
    dropout(ctx, dy, dy, {}, pass.tokens.rows, dropout_, pass.dropout_key("embedding_dropout", 0));
  const GradientSlot d_tokens = pass.params.gradient(tokens_);
  embedding_backward(ctx, d_tokens.grad, dy, pass.tokens.ids, d_tokens.accumulate);
  if (positions_ < 0) return;
  const GradientSlot d_positions = pass.params.gradient(positions_);
  embedding_backward(ctx, d_positions.grad, dy, pass.tokens.positions, d_positions.accumulate);
}

}  // namespace trireme
