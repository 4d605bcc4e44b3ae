#include "transformer/layers/latent_attention.h"

#include <cmath>

#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/elementwise.h"

namespace trireme {
namespace {

constexpr double kLatentNormEps = 1e-6;

}  // namespace

LatentAttention::LatentAttention(const ModelConfig& config, const Layout& layout,
                                 ParameterList& list, const std::string& prefix, int block,
                                 int layer)
    : width_(config.head_dim),
      sizes_(config.latent),
      pairs_(config.rope_interleaved ? RotaryPairs::kInterleaved : RotaryPairs::kHalves),
      core_(config, layout, list, prefix, block, layer) {
  TRIREME_CHECK(config.rotates(layer), "layer ", layer,
                " has latent attention and no rotary positions");
  const int64_t h = config.num_heads, c = config.hidden_size;
  const int64_t both = sizes_.nope_dim + sizes_.value_dim;
  const double std = config.initializer_range;
  const LinearInit plain{false, std}, biased{config.attention_bias, std};
  const DimSlice q_rows = head_slice(h, width_, layout.tp);
  std::vector<LinearPart> down;
  if (sizes_.q_rank > 0) {
    down.push_back({prefix + ".q_a_proj", sizes_.q_rank, {}});
    q_norm_ = std::make_unique<Norm>(layout, list, prefix + ".q_a_layernorm", sizes_.q_rank,
                                     kLatentNormEps, block);
    q_up_ = ColumnLinear(list, {{prefix + ".q_b_proj", h * width_, q_rows}}, sizes_.q_rank, plain,
                         block);
  } else {
    q_up_ = ColumnLinear(list, {{prefix + ".q_proj", h * width_, q_rows}}, c, plain, block);
  }
  down.push_back({prefix + ".kv_a_proj_with_mqa", sizes_.kv_rank + sizes_.rope_dim, {}});
  down_ = ReplicatedLinear(list, layout, down, c, biased, block);
  kv_norm_ = std::make_unique<Norm>(layout, list, prefix + ".kv_a_layernorm", sizes_.kv_rank,
                                    kLatentNormEps, block);
  kv_up_ = ColumnLinear(list, {{prefix + ".kv_b_proj", h * both, head_slice(h, both, layout.tp)}},
                        sizes_.kv_rank, plain, block);
  // As in transformer/layers/attention.cpp: smaller initial values of projections into the residual
  // stream.
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  o_proj_ = RowLinear(list, layout, prefix + ".o_proj", c, h * sizes_.value_dim,
                      head_slice(h, sizes_.value_dim, layout.tp),
                      {config.attention_output_bias, residual_std}, block);
}

std::vector<ParamHandle> LatentAttention::linear_weights() const {
  return {q_up_.weight(), down_.weight(), kv_up_.weight(), o_proj_.weight()};
}

template <class AnyTensor>
LatentAttention::Down<AnyTensor> LatentAttention::parts(const AnyTensor& down) const {
  const int64_t q = sizes_.q_rank, kv = q + sizes_.kv_rank;
  return {down.slice(1, 0, q), down.slice(1, q, kv), down.slice(1, kv, kv + sizes_.rope_dim)};
}

Tensor LatentAttention::by_heads(const Activation& wide) const {
  return wide->split_last(core_.heads(), width_);
}

LatentAttention::Expanded LatentAttention::expand(Pass& pass, const ConstTensor& kv,
                                                  const ConstTensor& k_rope) const {
  const Shape shape{kv.size(0), core_.heads() * width_};
  Expanded out{pass.ctx.allocate("latent_attention.k", kv.dtype(), shape),
               pass.ctx.allocate("latent_attention.v", kv.dtype(), shape)};
  latent_heads_forward(pass.ctx, by_heads(out.k), by_heads(out.v),
                       kv.split_last(core_.heads(), sizes_.nope_dim + sizes_.value_dim), k_rope);
  return out;
}

// (T, H Dv) -> (T, H D): pads each head with zeros.
Activation LatentAttention::widen(Pass& pass, const ConstTensor& out) const {
  const int64_t rows = out.size(0) * core_.heads();
  Activation wide = pass.ctx.allocate("latent_attention.wide", out.dtype(),
                                      Shape{out.size(0), core_.heads() * width_});
  fill_zero(pass.ctx, wide);
  copy_rows(pass.ctx, wide->reshape({rows, width_}).slice(1, 0, sizes_.value_dim),
            out.reshape({rows, sizes_.value_dim}));
  return wide;
}

void LatentAttention::rotate_queries(Pass& pass, const Tensor& q, const ConstTensor& cos_sin,
                                     bool inverse) const {
  rotary(pass.ctx, q.split_last(core_.heads(), width_).slice(2, sizes_.nope_dim, width_), cos_sin,
         pass.tokens.positions, inverse, pairs_);
}

void LatentAttention::rotate_key(Pass& pass, const Tensor& k_rope, const ConstTensor& cos_sin,
                                 bool inverse) const {
  rotary(pass.ctx, k_rope.split_last(1, sizes_.rope_dim), cos_sin,
         pass.residual_part(pass.tokens.positions), inverse, pairs_);
}

// Latents of this rank's share of the tokens, before and after their norms, and the rotated key.
void LatentAttention::down(Pass& pass, const ConstTensor& x, const ConstTensor& cos_sin,
                           Saved& saved, Activation& k_rope) const {
  Ctx& ctx = pass.ctx;
  const int64_t rows = x.size(0);
  const auto allocate = [&](const char* name, int64_t columns) {
    return ctx.allocate(name, x.dtype(), Shape{rows, columns});
  };
  const Activation all = allocate("latent_attention.down", down_.out());
  down_.forward(pass, all, x);
  const Down<Tensor> part = parts(*all);
  if (q_norm_) {
    saved.q_latent = allocate("latent_attention.q_latent", sizes_.q_rank);
    copy_rows(ctx, saved.q_latent, part.q);
    saved.q_normed = allocate("latent_attention.q_normed", sizes_.q_rank);
    q_norm_->forward(pass, saved.q_normed, {}, saved.q_latent, {}, saved.q_norm);
  }
  saved.kv_latent = allocate("latent_attention.kv_latent", sizes_.kv_rank);
  copy_rows(ctx, saved.kv_latent, part.kv);
  saved.kv_normed = allocate("latent_attention.kv_normed", sizes_.kv_rank);
  kv_norm_->forward(pass, saved.kv_normed, {}, saved.kv_latent, {}, saved.kv_norm);
  k_rope = allocate("latent_attention.k_rope", sizes_.rope_dim);
  copy_rows(ctx, k_rope, part.rope);
  rotate_key(pass, k_rope, cos_sin, false);
}

void LatentAttention::forward(Pass& pass, const Tensor& y, const ConstTensor& x,
                              const ConstTensor& cos_sin, Saved* saved) const {
  Ctx& ctx = pass.ctx;
  const int64_t t = pass.tokens.count, heads = core_.heads();
  Saved kept;
  down(pass, x, cos_sin, kept, kept.k_rope);
  kept.q = ctx.allocate("latent_attention.q", x.dtype(), Shape{t, q_up_.out()});
  q_up_.forward(pass, kept.q, q_norm_ ? *kept.q_normed : x);
  rotate_queries(pass, kept.q, cos_sin, false);
  kept.kv = ctx.allocate("latent_attention.kv", x.dtype(), Shape{t, kv_up_.out()});
  kv_up_.forward(pass, kept.kv, kept.kv_normed);
  if (pass.token_split().size > 1) {
    Activation all = ctx.allocate("latent_attention.k_rope", x.dtype(), Shape{t, sizes_.rope_dim});
    copy_rows(ctx, all, *gather_tokens(pass, kept.k_rope));
    kept.k_rope = std::move(all);
  }
  Activation wide = ctx.allocate("latent_attention.wide", x.dtype(), Shape{t, heads * width_});
  {
    const Expanded expanded = expand(pass, kept.kv, kept.k_rope);
    core_.forward(pass, by_heads(wide),
                  {by_heads(kept.q), by_heads(expanded.k), by_heads(expanded.v)},
                  saved != nullptr ? &kept.heads : nullptr);
  }
  kept.out = ctx.allocate("latent_attention.out", x.dtype(), Shape{t, heads * sizes_.value_dim});
  copy_rows(ctx, kept.out->reshape({t * heads, sizes_.value_dim}),
            wide->reshape({t * heads, width_}).slice(1, 0, sizes_.value_dim));
  wide.reset();
  o_proj_.forward(pass, y, kept.out);
  if (saved == nullptr) return;
  if (!core_.backward_reads_heads(kept.heads)) {
    kept.q.reset();
    kept.kv.reset();
    kept.k_rope.reset();
  }
  *saved = std::move(kept);
}

// Gradient of the rotated key from this rank's heads (T, Dr) -> gradient of the key before rotation
// from all heads, for this rank's share of the tokens.
Activation LatentAttention::backward_key(Pass& pass, const Tensor& partial,
                                         const ConstTensor& cos_sin) const {
  Activation d = pass.ctx.allocate("latent_attention.d_k_rope", partial.dtype(),
                                   Shape{pass.residual_rows(), sizes_.rope_dim});
  if (!needs_partial_sums(pass)) copy_rows(pass.ctx, d, partial);
  reduce_over_tensor_ranks(pass, d, partial);
  rotate_key(pass, d, cos_sin, true);
  return d;
}

LatentAttention::Deferred LatentAttention::backward_input(Pass& pass, const Tensor& dx,
                                                          const ConstTensor& dy,
                                                          const ConstTensor& cos_sin,
                                                          const Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const DType dtype = dy.dtype();
  const int64_t t = pass.tokens.count, heads = core_.heads(), rows = pass.residual_rows();
  const auto allocate = [&](const char* name, int64_t count, int64_t columns) {
    return ctx.allocate(name, dtype, Shape{count, columns});
  };
  Deferred deferred;
  Activation d_wide;
  {
    const Activation d_out = allocate("latent_attention.d_out", t, heads * sizes_.value_dim);
    deferred.dy = o_proj_.backward_input(pass, d_out, dy);
    d_wide = widen(pass, d_out);
  }
  deferred.d_q = allocate("latent_attention.d_q", t, heads * width_);
  Activation dk = allocate("latent_attention.d_k", t, heads * width_);
  Activation dv = allocate("latent_attention.d_v", t, heads * width_);
  {
    Activation out;
    Expanded expanded;
    CoreAttention::Heads forward;
    if (core_.backward_reads_heads(saved.heads)) {
      out = widen(pass, saved.out);
      expanded = expand(pass, saved.kv, saved.k_rope);
      forward = {by_heads(saved.q), by_heads(expanded.k), by_heads(expanded.v)};
    }
    core_.backward(pass, {by_heads(deferred.d_q), by_heads(dk), by_heads(dv)}, by_heads(d_wide),
                   out.present() ? by_heads(out) : Tensor(), forward, saved.heads);
  }
  d_wide.reset();
  rotate_queries(pass, deferred.d_q, cos_sin, true);

  const int64_t both = sizes_.nope_dim + sizes_.value_dim;
  deferred.d_kv = allocate("latent_attention.d_kv", t, heads * both);
  Activation d_rope = allocate("latent_attention.d_k_rope_of_heads", t, sizes_.rope_dim);
  latent_heads_backward(ctx, deferred.d_kv->split_last(heads, both), d_rope, by_heads(dk),
                        by_heads(dv));
  dk.reset();
  dv.reset();
  deferred.d_down = allocate("latent_attention.d_down", rows, down_.out());
  const Down<Tensor> d_part = parts(*deferred.d_down);
  copy_rows(ctx, d_part.rope, *backward_key(pass, d_rope, cos_sin));
  d_rope.reset();
  const auto through_norm = [&](const ColumnLinear& up, const Norm& norm, const Tensor& d_latent,
                                const ConstTensor& d_up, const ConstTensor& latent,
                                const Norm::Saved& kept) {
    const Activation d = allocate("latent_attention.d_latent", rows, latent.size(1));
    up.backward_input(pass, d, d_up);
    norm.backward(pass, d, d, {}, latent, kept);
    copy_rows(ctx, d_latent, *d);
  };
  through_norm(kv_up_, *kv_norm_, d_part.kv, deferred.d_kv, saved.kv_latent, saved.kv_norm);
  if (q_norm_) {
    through_norm(q_up_, *q_norm_, d_part.q, deferred.d_q, saved.q_latent, saved.q_norm);
    down_.backward_input(pass, dx, deferred.d_down);
    return deferred;
  }
  q_up_.backward_input(pass, dx, deferred.d_q);
  const Activation d_x = allocate("latent_attention.d_x", rows, dx.size(1));
  down_.backward_input(pass, d_x, deferred.d_down);
  add(ctx, dx, dx, d_x);
  return deferred;
}

void LatentAttention::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                                      const Saved& saved, const Deferred& deferred) const {
  ArrivingTokens q_input(pass, q_norm_ ? *saved.q_normed : x);
  ArrivingTokens kv_input(pass, saved.kv_normed);
  o_proj_.backward_weight(pass, dy, deferred.dy, saved.out);
  down_.backward_weight(pass, deferred.d_down, x);
  q_up_.backward_weight(pass, deferred.d_q, q_input.wait());
  kv_up_.backward_weight(pass, deferred.d_kv, kv_input.wait());
}

}  // namespace trireme
