#include "transformer/layers/core_attention.h"

#include <cmath>

#include "transformer/pass/frozen_gradient.h"

namespace trireme {

CoreAttention::CoreAttention(const ModelConfig& config, const Layout& layout, ParameterList& list,
                             const std::string& prefix, int block, int layer)
    : total_heads_(config.num_heads),
      scale_(config.attention_scale > 0 ? config.attention_scale
                                        : 1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      soft_cap_(config.attention_soft_cap),
      dropout_(config.attention_dropout),
      window_(config.window(layer)),
      chunked_(config.chunked(layer)),
      layer_(layer) {
  const DimSlice mine = head_slice(config.num_heads, 1, layout.tp);
  heads_ = mine.size();
  first_head_ = mine.begin;
  if (config.attention_sinks)
    sinks_ = list.add({.name = prefix + ".sinks",
                       .shape = Shape{config.num_heads},
                       .box = box_of(mine),
                       .init = InitKind::kNormal,
                       .init_std = config.initializer_range,
                       .block = block,
                       .partial = mine.partial,
                       .copies = mine.copies,
                       .copy = mine.copy});
}

AttentionArgs CoreAttention::op_args(const Pass& pass, const Tokens& tokens) const {
  AttentionArgs args;
  args.window = window_;
  args.scale = scale_;
  args.soft_cap = soft_cap_;
  args.uniform_length = tokens.uniform_length;
  args.max_seqlen = tokens.max_seqlen;
  if (sinks_ >= 0) args.sinks = pass.params.value(sinks_);
  if (dropout_ > 0 && pass.ctx.mode == Mode::kTrain) {
    args.dropout = dropout_;
    args.first_head = first_head_;
    args.total_heads = total_heads_;
    args.key = pass.dropout_key("attention_dropout", layer_);
    args.global_index = tokens.global_index;
  }
  return args;
}

void CoreAttention::forward(Pass& pass, const Tensor& out, const Heads& heads, Saved* saved) const {
  Ctx& ctx = pass.ctx;
  if (saved != nullptr) *saved = {};
  const Tokens tokens = chunked_ ? in_chunks(pass.tokens) : pass.tokens;
  if (tokens.context != nullptr) {
    pass.groups->context->forward(ctx, out, heads.q, heads.k, heads.v, *tokens.context,
                                  op_args(pass, tokens),
                                  saved != nullptr ? &saved->context : nullptr);
    return;
  }
  if (pass.cache != nullptr) {
    TRIREME_CHECK(saved == nullptr, "attention over a KV cache has no backward");
    pass.cache->attend(ctx, layer_, out, heads.q, heads.k, heads.v, tokens, op_args(pass, tokens));
    return;
  }
  Activation lse =
      ctx.allocate("attention.lse", sum_dtype(out.dtype()), Shape{heads_, tokens.count});
  attention_forward(ctx, out, lse, heads.q, heads.k, heads.v, tokens.cu_q, tokens.cu_q,
                    op_args(pass, tokens));
  if (saved != nullptr) saved->lse = std::move(lse);
}

void CoreAttention::backward(Pass& pass, const Heads& d, const ConstTensor& d_out,
                             const ConstTensor& out, const Heads& heads, const Saved& saved) const {
  const Tokens tokens = chunked_ ? in_chunks(pass.tokens) : pass.tokens;
  AttentionArgs args = op_args(pass, tokens);
  Activation unused;
  if (sinks_ >= 0) {
    const GradientSlot d_sinks = gradient_or_scratch(pass, sinks_, unused);
    args.d_sinks = d_sinks.grad;
    args.accumulate_sinks = d_sinks.accumulate;
  }
  if (tokens.context != nullptr)
    pass.groups->context->backward(pass.ctx, d.q, d.k, d.v, d_out, out, heads.q, heads.k, heads.v,
                                   *tokens.context, args, saved.context);
  else
    attention_backward(pass.ctx, d.q, d.k, d.v, d_out, out, saved.lse, heads.q, heads.k, heads.v,
                       tokens.cu_q, tokens.cu_q, args);
}

}  // namespace trireme
