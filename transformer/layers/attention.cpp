#include "transformer/layers/attention.h"

#include <cmath>

#include "transformer/families/family.h"

namespace trireme {

Attention::Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
                     const std::string& prefix, int block, int layer)
    : head_dim_(config.head_dim),
      rotary_dim_(rotary_width(config)),
      rotates_(config.rotates(layer)),
      norm_after_rope_(config.qk_norm && config.qk_norm_after_rope),
      pairs_(config.rope_interleaved ? RotaryPairs::kInterleaved : RotaryPairs::kHalves),
      attention_(config, layout, list, prefix, block, layer) {
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
  if (config.qk_norm && (rotates_ || !config.qk_norm_weightless))
    norm_ = make_query_key_norm(config, layout, list, prefix, block);
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

void Attention::rotate(Pass& pass, const Tensor& qk, const ConstTensor& cos_sin,
                       bool inverse) const {
  if (!cos_sin.present()) return;
  const Tensor heads = qk.split_last(heads_ + kv_heads_, head_dim_).slice(2, 0, rotary_dim_);
  const auto rotate_heads = [&](int64_t begin, int64_t end, const ConstTensor& table) {
    rotary(pass.ctx, heads.slice(1, begin, end), table, pass.tokens.positions, inverse, pairs_);
  };
  if (cos_sin.rank() == 2)  // a layer without rotary positions has a factor of the queries alone
    return rotate_heads(0, rotates_ ? heads_ + kv_heads_ : heads_, cos_sin);
  const auto table = [&](int64_t k) {
    return cos_sin.slice(0, k, k + 1).reshape({cos_sin.size(1), cos_sin.size(2)});
  };
  rotate_heads(0, heads_, table(1));
  rotate_heads(heads_, heads_ + kv_heads_, table(0));
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
  if (norm_ != nullptr && saved != nullptr)
    kept.qk = ctx.allocate("attention.qk", x.dtype(), Shape{t, qk_width});
  const CoreAttention::Heads heads = attended(split(qkv), kept.qk);
  const Tensor raw = qkv->slice(1, 0, qk_width), qk = kept.qk.present() ? *kept.qk : raw;
  if (norm_after_rope_) rotate(pass, raw, cos_sin, false);
  if (norm_ != nullptr) kept.norm = norm_->forward(pass, qk, raw);
  if (!norm_after_rope_) rotate(pass, qk, cos_sin, false);
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
  if (!exchanged || norm_ != nullptr) saved->qkv = std::move(qkv);
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
  const int64_t qk_width = (heads_ + kv_heads_) * head_dim_;
  const Tensor d_qk = d_qkv->slice(1, 0, qk_width);
  if (!norm_after_rope_) rotate(pass, d_qk, cos_sin, true);
  if (norm_ != nullptr) norm_->backward(pass, d_qk, saved.qkv->slice(1, 0, qk_width), saved.norm);
  if (norm_after_rope_) rotate(pass, d_qk, cos_sin, true);
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
