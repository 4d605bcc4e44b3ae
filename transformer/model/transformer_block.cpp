#include "transformer/model/transformer_block.h"

#include "engine/ops/rows/elementwise.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

std::string part(const std::string& prefix, const char* name) { return concat(prefix, ".", name); }

// Input of a branch: `x`, normalized where the block has a pre-norm.
ConstTensor input_of(const Activation& normed, const Activation& x) {
  return normed.present() ? *normed : *x;
}

}  // namespace

TransformerBlock::TransformerBlock(const ModelConfig& config, const Layout& layout,
                                   ParameterList& list, const std::string& prefix, int block,
                                   int layer)
    : dropout_(config.residual_dropout), residual_scale_(config.residual_scale), layer_(layer) {
  const ParameterNames& names = parameter_names(config);
  const auto norm = [&](const char* name) {
    return std::make_unique<Norm>(config, layout, list, part(prefix, name), block);
  };
  if (config.pre_norms) norm1_ = norm(names.attention_norm);
  mixer_ = make_mixer(config, layout, list, part(prefix, names.attention), block, layer);
  if (config.pre_norms) norm2_ = norm(names.mlp_norm);
  feed_forward_ = make_feed_forward(config, layout, list, prefix, block, layer);
  if (!config.post_norms) return;
  attention_post_norm_ = norm(names.attention_post_norm);
  mlp_post_norm_ = norm(names.mlp_post_norm);
}

std::vector<ParamHandle> TransformerBlock::linear_weights() const {
  std::vector<ParamHandle> weights = mixer_->linear_weights();
  const std::vector<ParamHandle> rest = feed_forward_->linear_weights();
  weights.insert(weights.end(), rest.begin(), rest.end());
  return weights;
}

Activation TransformerBlock::branch_output(Pass& pass, const char* name, Activation branch) const {
  if (dropout_ > 0 && pass.ctx.mode == Mode::kTrain)
    dropout(pass.ctx, branch, branch, {}, pass.residual_part(pass.tokens.global_index), dropout_,
            pass.dropout_key(name, layer_));
  if (residual_scale_ != 1)
    scale(pass.ctx, branch, branch, residual_scale_, FactorRounding::kProduct);
  return branch;
}

Activation TransformerBlock::forward(Pass& pass, Activation x, const ConstTensor& cos_sin,
                                     Saved* saved, Recompute recompute) const {
  if (saved == nullptr || recompute != Recompute::kFull)
    return run(pass, std::move(x), cos_sin, saved, recompute);
  // Full recompute: run on a copy, which is freed, and save only the input.
  Activation copy = pass.ctx.allocate("block.x", x->dtype(), x->shape());
  cast(pass.ctx, copy, x);
  Activation y = run(pass, std::move(copy), cos_sin, nullptr, recompute);
  saved->x = std::move(x);
  return y;
}

Activation TransformerBlock::run(Pass& pass, Activation x, const ConstTensor& cos_sin, Saved* saved,
                                 Recompute recompute) const {
  Ctx& ctx = pass.ctx;
  const DType dtype = x->dtype();
  const Shape shape = x->shape();
  Saved kept;
  Activation n1 = normed(pass, norm1_, "block.n1", x, kept.norm1);
  Activation branch = ctx.allocate("block.attention", dtype, shape);
  kept.mixer = mixer_->forward(pass, branch, input_of(n1, x), cos_sin, saved != nullptr);
  if (saved == nullptr || recompute == Recompute::kSelective) n1.reset();
  branch = post_norm(pass, attention_post_norm_, std::move(branch),
                     saved != nullptr ? &kept.attended : nullptr, kept.attention_branch);
  branch = branch_output(pass, "attention_branch", std::move(branch));

  Activation h = ctx.allocate("block.h", dtype, shape);
  Activation n2;
  if (norm2_ != nullptr) {
    n2 = ctx.allocate("block.n2", dtype, shape);
    norm2_->forward(pass, n2, h, branch, x, kept.norm2);
  } else {
    add(ctx, h, branch, x);
  }
  if (saved == nullptr) x.reset();
  const bool keep_act = recompute != Recompute::kSelective;
  kept.feed_forward =
      feed_forward_->forward(pass, branch, input_of(n2, h), saved != nullptr, keep_act);
  if (saved == nullptr || recompute == Recompute::kSelective) n2.reset();
  branch = post_norm(pass, mlp_post_norm_, std::move(branch),
                     saved != nullptr ? &kept.mlp_out : nullptr, kept.mlp_branch);
  branch = branch_output(pass, "mlp_branch", std::move(branch));
  add(ctx, branch, branch, h);
  ctx.tap("block.output", branch);
  if (saved != nullptr) {
    kept.x = std::move(x);
    kept.n1 = std::move(n1);
    kept.h = std::move(h);
    kept.n2 = std::move(n2);
    *saved = std::move(kept);
  }
  return branch;
}

Activation TransformerBlock::normed(Pass& pass, const std::unique_ptr<Norm>& norm, const char* name,
                                    const Activation& x, Norm::Saved& statistics) const {
  if (norm == nullptr) return {};
  Activation out = pass.ctx.allocate(name, x->dtype(), x->shape());
  norm->forward(pass, out, {}, x, {}, statistics);
  return out;
}

Activation TransformerBlock::post_norm(Pass& pass, const std::unique_ptr<Norm>& norm,
                                       Activation branch, Activation* kept,
                                       Norm::Saved& statistics) const {
  if (norm == nullptr) return branch;
  Activation out = pass.ctx.allocate("block.normed_branch", branch->dtype(), branch->shape());
  norm->forward(pass, out, {}, branch, {}, statistics);
  if (kept != nullptr) *kept = std::move(branch);
  return out;
}

Activation TransformerBlock::branch_gradient(Pass& pass, const char* name,
                                             const std::unique_ptr<Norm>& norm,
                                             const ConstTensor& d, const Activation& kept,
                                             const Norm::Saved& statistics) const {
  Activation out;
  const bool drop = dropout_ > 0 && pass.ctx.mode == Mode::kTrain;
  const bool scaled = residual_scale_ != 1;
  if (!scaled && !drop && norm == nullptr) return out;
  out = pass.ctx.allocate("block.d_branch", d.dtype(), d.shape());
  ConstTensor now = d;
  if (scaled) {
    scale(pass.ctx, out, now, residual_scale_, FactorRounding::kProduct);
    now = *out;
  }
  if (drop) {
    dropout(pass.ctx, out, now, {}, pass.residual_part(pass.tokens.global_index), dropout_,
            pass.dropout_key(name, layer_));
    now = *out;
  }
  if (norm != nullptr) norm->backward(pass, out, now, {}, kept, statistics);
  return out;
}

void TransformerBlock::restore_attention_input(Pass& pass, Saved& saved) const {
  if (saved.n1.present()) return;
  Norm::Saved again;  // equal to the saved statistics, which stay
  saved.n1 = normed(pass, norm1_, "block.n1", saved.x, again);
}

void TransformerBlock::restore_mlp_input(Pass& pass, Saved& saved) const {
  if (saved.n2.present()) return;
  Norm::Saved again;
  saved.n2 = normed(pass, norm2_, "block.n2", saved.h, again);
}

void TransformerBlock::norm_backward(Pass& pass, const std::unique_ptr<Norm>& norm,
                                     const Tensor& dx, const ConstTensor& d_norm,
                                     const ConstTensor& residual, const Activation& x,
                                     const Norm::Saved& statistics) const {
  if (norm != nullptr)
    norm->backward(pass, dx, d_norm, residual, x, statistics);
  else
    add(pass.ctx, dx, d_norm, residual);
}

Activation TransformerBlock::backward_input(Pass& pass, Activation dy, const ConstTensor& cos_sin,
                                            Saved saved, Recompute recompute,
                                            Deferred& deferred) const {
  Ctx& ctx = pass.ctx;
  if (recompute == Recompute::kFull) {
    Activation x = std::move(saved.x);
    run(pass, std::move(x), cos_sin, &saved, Recompute::kNone).reset();
  }
  const DType dtype = dy->dtype();
  const Shape shape = dy->shape();
  deferred.d_mlp =
      branch_gradient(pass, "mlp_branch", mlp_post_norm_, dy, saved.mlp_out, saved.mlp_branch);
  saved.mlp_out.reset();
  Activation d_norm = ctx.allocate("block.d_norm", dtype, shape);
  const ConstTensor d_branch = deferred.d_mlp.present() ? *deferred.d_mlp : *dy;
  const bool reads_input = feed_forward_->input_pass_reads_input();
  if (reads_input) restore_mlp_input(pass, saved);
  deferred.feed_forward = feed_forward_->backward_input(
      pass, d_norm, d_branch, reads_input ? input_of(saved.n2, saved.h) : ConstTensor(),
      *saved.feed_forward);
  Activation dh = ctx.allocate("block.dh", dtype, shape);
  norm_backward(pass, norm2_, dh, d_norm, dy, saved.h, saved.norm2);

  deferred.d_attention = branch_gradient(pass, "attention_branch", attention_post_norm_, dh,
                                         saved.attended, saved.attention_branch);
  saved.attended.reset();
  const ConstTensor d_attention = deferred.d_attention.present() ? *deferred.d_attention : *dh;
  deferred.mixer = mixer_->backward_input(pass, d_norm, d_attention, cos_sin, *saved.mixer);
  Activation dx = ctx.allocate("block.dx", dtype, shape);
  norm_backward(pass, norm1_, dx, d_norm, dh, saved.x, saved.norm1);
  deferred.saved = std::move(saved);
  deferred.dy = std::move(dy);
  deferred.dh = std::move(dh);
  return dx;
}

void TransformerBlock::backward_weight(Pass& pass, Deferred deferred) const {
  restore_attention_input(pass, deferred.saved);
  restore_mlp_input(pass, deferred.saved);
  const Saved& saved = deferred.saved;
  const ConstTensor d_mlp = deferred.d_mlp.present() ? *deferred.d_mlp : *deferred.dy;
  const ConstTensor d_attention =
      deferred.d_attention.present() ? *deferred.d_attention : *deferred.dh;
  feed_forward_->backward_weight(pass, d_mlp, input_of(saved.n2, saved.h), *saved.feed_forward,
                                 *deferred.feed_forward);
  mixer_->backward_weight(pass, d_attention, input_of(saved.n1, saved.x), *saved.mixer,
                          *deferred.mixer);
}

}  // namespace trireme
