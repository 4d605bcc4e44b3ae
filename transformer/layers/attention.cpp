#include "transformer/layers/attention.h"

#include <cmath>

#include "engine/ops/attention/rotary.h"
#include "engine/ops/norm/head_norm.h"
#include "transformer/families/family.h"
#include "transformer/layers/norm.h"

namespace trireme {

Attention::Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
                     const std::string& prefix, int block, int layer)
    : head_dim_(config.head_dim),
      norm_eps_(config.norm_eps),
      gamma_offset_(config.zero_centered_gamma ? 1 : 0),
      attention_(config, layout, layer) {
  const DimSlice q = head_slice(config.num_heads, head_dim_, layout.tp);
  const DimSlice kv = head_slice(config.num_kv_heads, head_dim_, layout.tp);
  heads_ = q.size() / head_dim_;
  kv_heads_ = kv.size() / head_dim_;
  const int64_t width = config.num_heads * head_dim_, kv_width = config.num_kv_heads * head_dim_;
  const double std = config.initializer_range;
  qkv_proj_ = ColumnLinear(list,
                           {{prefix + ".q_proj", width, q},
                            {prefix + ".k_proj", kv_width, kv},
                            {prefix + ".v_proj", kv_width, kv}},
                           config.hidden_size, {config.attention_bias, std}, block);
  // Projections into the residual stream start smaller, by the square root of their number
  // (Radford et al. 2019, section 2.3).
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  const char* const o = parameter_names(config).attention_output;
  o_proj_ = RowLinear(list, layout, concat(prefix, ".", o), config.hidden_size, width, q,
                      {config.attention_output_bias, residual_std}, block);
  if (!config.qk_norm) return;
  const auto norm = [&](const char* name) {
    return list.add(
        {.name = concat(prefix, ".", name, ".weight"),
         .shape = Shape{head_dim_},
         .init = config.zero_centered_gamma ? InitKind::kZeros : InitKind::kOnes,
         .block = block,
         // A rank's gradient covers its own heads, and its own queries of a shared key head.
         .partial = layout.tp.size > 1 ? PartialSum::kTensor : PartialSum::kNone,
         .copies = layout.tp.size,
         .copy = layout.tp.index});
  };
  q_norm_ = norm("q_norm");
  k_norm_ = norm("k_norm");
}

CoreAttention::Heads Attention::split(const Tensor& qkv) const {
  const int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  return {qkv.slice(1, 0, q).split_last(heads_, head_dim_),
          qkv.slice(1, q, q + kv).split_last(kv_heads_, head_dim_),
          qkv.slice(1, q + kv, q + 2 * kv).split_last(kv_heads_, head_dim_)};
}

CoreAttention::Heads Attention::attended(CoreAttention::Heads heads, const Activation& qk) const {
  if (!qk.present()) return heads;
  const int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  heads.q = qk->slice(1, 0, q).split_last(heads_, head_dim_);
  heads.k = qk->slice(1, q, q + kv).split_last(kv_heads_, head_dim_);
  return heads;
}

void Attention::normalise(Pass& pass, const CoreAttention::Heads& to,
                          const CoreAttention::Heads& from, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const DType statistics = sum_dtype(from.q.dtype());
  const int64_t t = from.q.size(0);
  saved.q_rstd = ctx.allocate("attention.q_rstd", statistics, Shape{t, heads_});
  saved.k_rstd = ctx.allocate("attention.k_rstd", statistics, Shape{t, kv_heads_});
  head_norm_forward(ctx, to.q, saved.q_rstd, from.q, pass.params.value(q_norm_), norm_eps_,
                    gamma_offset_);
  head_norm_forward(ctx, to.k, saved.k_rstd, from.k, pass.params.value(k_norm_), norm_eps_,
                    gamma_offset_);
}

void Attention::normalise_backward(Pass& pass, const CoreAttention::Heads& d,
                                   const Saved& saved) const {
  const CoreAttention::Heads raw = split(saved.qkv);
  Activation unused[2];
  const GradientSlot dq = gradient_or_scratch(pass, q_norm_, unused[0]),
                     dk = gradient_or_scratch(pass, k_norm_, unused[1]);
  head_norm_backward(pass.ctx, d.q, dq.grad, d.q, raw.q, pass.params.value(q_norm_), saved.q_rstd,
                     dq.accumulate, gamma_offset_);
  head_norm_backward(pass.ctx, d.k, dk.grad, d.k, raw.k, pass.params.value(k_norm_), saved.k_rstd,
                     dk.accumulate, gamma_offset_);
}

void Attention::forward(Pass& pass, const Tensor& y, const ConstTensor& x,
                        const ConstTensor& cos_sin, Saved* saved) const {
  Ctx& ctx = pass.ctx;
  const int64_t t = pass.tokens.count;
  Activation qkv = ctx.allocate("attention.qkv", x.dtype(), Shape{t, qkv_proj_.out()});
  qkv_proj_.forward(pass, qkv, x);
  const int64_t qk_width = (heads_ + kv_heads_) * head_dim_;
  Saved kept;
  // Backward needs q and k before and after the norm.
  if (q_norm_ >= 0 && saved != nullptr)
    kept.qk = ctx.allocate("attention.qk", x.dtype(), Shape{t, qk_width});
  const CoreAttention::Heads heads = attended(split(qkv), kept.qk);
  if (q_norm_ >= 0) normalise(pass, heads, split(qkv), kept);
  if (cos_sin.present()) {
    // q and k are adjacent in the packed tensor: one call rotates both.
    const Tensor packed = kept.qk.present() ? *kept.qk : qkv->slice(1, 0, qk_width);
    rotary(ctx, packed.split_last(heads_ + kv_heads_, head_dim_), cos_sin, pass.tokens.positions,
           false);
  }
  Activation out = ctx.allocate("attention.out", x.dtype(), Shape{t, heads_ * head_dim_});
  if (saved != nullptr) *saved = std::move(kept);
  attention_.forward(pass, out->split_last(heads_, head_dim_), heads,
                     saved != nullptr ? &saved->heads : nullptr);
  o_proj_.forward(pass, y, out);
  if (saved == nullptr) return;
  saved->out = std::move(out);
  // Exchanged heads replace this rank's heads, which only the norms still need.
  const bool exchanged = !attention_.backward_reads_heads(saved->heads);
  if (exchanged) saved->qk.reset();
  if (!exchanged || q_norm_ >= 0) saved->qkv = std::move(qkv);
}

Attention::Deferred Attention::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                              const ConstTensor& cos_sin,
                                              const Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const int64_t t = pass.tokens.count;
  Activation d_out = ctx.allocate("attention.d_out", dy.dtype(), saved.out->shape());
  AllTokens dy_all = o_proj_.backward_input(pass, d_out, dy);
  Activation d_qkv = ctx.allocate("attention.d_qkv", dy.dtype(), Shape{t, qkv_proj_.out()});
  attention_.backward(pass, split(d_qkv), d_out->split_last(heads_, head_dim_),
                      saved.out->split_last(heads_, head_dim_),
                      attention_.backward_reads_heads(saved.heads)
                          ? attended(split(saved.qkv), saved.qk)
                          : CoreAttention::Heads{},
                      saved.heads);
  if (cos_sin.present()) {
    const Tensor d_qk = d_qkv->slice(1, 0, (heads_ + kv_heads_) * head_dim_)
                            .split_last(heads_ + kv_heads_, head_dim_);
    rotary(ctx, d_qk, cos_sin, pass.tokens.positions, true);
  }
  if (q_norm_ >= 0) normalise_backward(pass, split(d_qkv), saved);
  qkv_proj_.backward_input(pass, dx, d_qkv);
  return {std::move(d_qkv), std::move(dy_all)};
}

void Attention::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                                const Saved& saved, const Deferred& deferred) const {
  ArrivingTokens arriving(pass, x);
  o_proj_.backward_weight(pass, dy, deferred.dy, saved.out);
  qkv_proj_.backward_weight(pass, deferred.d_qkv, arriving.wait());
}

}  // namespace trireme
