#include "transformer/lm_head.h"

#include <algorithm>

#include "engine/ops/cross_entropy.h"
#include "engine/ops/gemm.h"

namespace trireme {
namespace {

// Bytes of one chunk of logits: large enough that the products run at full speed (a chunk of 600
// tokens for a vocabulary of 50,000), small against the rest of a training step.
constexpr int64_t kChunkBytes = int64_t{128} << 20;
constexpr int64_t kRowAlignment = 64;  // elements between rows: keeps rows on cache lines

ParamHandle add_head(const ModelConfig& config, ParameterList& list, int block,
                     ParamHandle tied_table) {
  if (tied_table >= 0) return tied_table;
  return list.add({.name = "lm_head.weight",
                   .shape = Shape{config.vocab_size, config.hidden_size},
                   .init = InitKind::kNormal,
                   .init_std = config.initializer_range,
                   .decay = true,
                   .block = block});
}

}  // namespace

LmHead::LmHead(const ModelConfig& config, ParameterList& list, int block, ParamHandle tied_table)
    : vocab_(config.vocab_size),
      width_(config.hidden_size),
      norm_(config, list, config.family == ModelFamily::kGpt2 ? "transformer.ln_f" : "model.norm",
            block),
      weight_(add_head(config, list, block, tied_table)) {}

Activation LmHead::normalise(Pass& pass, const ConstTensor& x, Norm::Saved& saved) const {
  Activation y = pass.ctx.allocate("head.norm", x.dtype(), x.shape());
  norm_.forward(pass, y, {}, x, {}, saved);
  return y;
}

Activation LmHead::allocate_logits(Pass& pass, int64_t rows) const {
  const DType dtype = pass.params.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return pass.ctx.allocate("head.logits", dtype, Shape{rows, round_up(vocab_, kRowAlignment)});
}

Activation LmHead::loss_chunks(Pass& pass, const ConstTensor& y, const Loss& loss,
                               bool backward) const {
  Ctx& ctx = pass.ctx;
  const int64_t t = y.size(0);
  const int64_t row_bytes = round_up(vocab_, kRowAlignment) * 4;
  const int64_t most = std::max<int64_t>(1, kChunkBytes / row_bytes);
  const int64_t chunk = ceil_div(t, std::max<int64_t>(1, ceil_div(t, most)));  // equal chunks
  const Tensor weight = pass.params.value(weight_);
  Activation logits_block = allocate_logits(pass, chunk);
  // In float32 and float64 the gradient of the logits overwrites them.
  const bool in_place = logits_block->dtype() == y.dtype();
  Activation d_block, dy;
  if (backward) {
    dy = ctx.allocate("head.d_norm", y.dtype(), y.shape());
    if (!in_place) d_block = ctx.allocate("head.d_logits", y.dtype(), logits_block->shape());
  }
  for (int64_t begin = 0; begin < t; begin += chunk) {
    const int64_t end = std::min(t, begin + chunk);
    const auto part = [&](const Tensor& block) {
      return block.slice(0, 0, end - begin).slice(1, 0, vocab_);
    };
    const Tensor logits = part(logits_block);
    const ConstTensor rows = y.slice(0, begin, end);
    linear_forward(ctx, logits, rows, weight, {});
    const Tensor d_logits = !backward ? Tensor() : in_place ? logits : part(d_block);
    softmax_cross_entropy(
        ctx, loss.sum, loss.per_token.present() ? loss.per_token.slice(0, begin, end) : Tensor(),
        d_logits, logits, pass.tokens.targets.slice(0, begin, end), loss.scale, vocab_);
    if (!backward) continue;
    linear_backward_input(ctx, dy->slice(0, begin, end), d_logits, weight, false);
    const GradientSlot dw = pass.params.gradient(weight_);
    linear_backward_weight(ctx, dw.grad, d_logits, rows, dw.accumulate);
  }
  return dy;
}

void LmHead::loss(Pass& pass, Activation x, const Loss& loss) const {
  Norm::Saved saved;
  const Activation y = normalise(pass, x, saved);
  loss_chunks(pass, y, loss, false);
}

Activation LmHead::loss_and_backward(Pass& pass, Activation x, const Loss& loss) const {
  Norm::Saved saved;
  Activation y = normalise(pass, x, saved);
  Activation dy = loss_chunks(pass, y, loss, true);
  // The norm's input gradient takes the place of its output.
  norm_.backward(pass, y, dy, {}, x, saved);
  return y;
}

void LmHead::logits(Pass& pass, Activation x, const Tensor& logits) const {
  Norm::Saved saved;
  const int64_t t = x->size(0);
  const Activation y = normalise(pass, x->slice(0, t - logits.size(0), t), saved);
  linear_forward(pass.ctx, logits, y, pass.params.value(weight_), {});
}

}  // namespace trireme
