#include "transformer/layers/mlp.h"

#include <cmath>

#include "transformer/families/family.h"

namespace trireme {

Mlp::Mlp(const ModelConfig& config, const Layout& layout, ParameterList& list,
         const std::string& prefix, int block)
    : gated_(config.gated_mlp), unit_(config) {
  const ParameterNames& names = parameter_names(config);
  const int64_t c = config.hidden_size, f = config.intermediate_size;
  const DimSlice inner = even_slice(f, layout.tp);
  width_ = inner.size();
  const LinearInit init{config.mlp_bias, config.initializer_range};
  const double residual_std =
      config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  std::vector<LinearPart> parts;
  if (gated_) parts.push_back({concat(prefix, ".", names.mlp_gate), f, inner});
  parts.push_back({concat(prefix, ".", names.mlp_up), f, inner});
  first_ = ColumnLinear(list, parts, c, init, block);
  second_ = RowLinear(list, layout, concat(prefix, ".", names.mlp_down), c, f, inner,
                      {config.mlp_bias, residual_std}, block);
}

Activation Mlp::activate(Pass& pass, const ConstTensor& inner) const {
  Activation act = pass.ctx.allocate("mlp.act", inner.dtype(), Shape{inner.size(0), width_});
  if (gated_)
    unit_.forward(pass.ctx, act, inner);
  else
    activation_forward(pass.ctx, ActivationFunction::kGelu, act, inner);
  return act;
}

Mlp::Saved Mlp::forward_first(Pass& pass, const ConstTensor& x) const {
  Saved out;
  out.inner = pass.ctx.allocate("mlp.inner", x.dtype(), Shape{pass.tokens.count, first_.out()});
  first_.forward(pass, out.inner, x);
  out.act = activate(pass, out.inner);
  return out;
}

void Mlp::forward_second(Pass& pass, const Tensor& y, const Saved& saved) const {
  second_.forward(pass, y, saved.act);
}

void Mlp::forward(Pass& pass, const Tensor& y, const ConstTensor& x, Saved* saved,
                  bool keep_act) const {
  Saved kept = forward_first(pass, x);
  forward_second(pass, y, kept);
  if (saved == nullptr) return;
  if (!keep_act) kept.act.reset();
  *saved = std::move(kept);
}

Mlp::Deferred Mlp::backward_second(Pass& pass, const ConstTensor& dy, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  if (!saved.act.present()) saved.act = activate(pass, saved.inner);
  Activation d_act = ctx.allocate("mlp.d_act", dy.dtype(), Shape{pass.tokens.count, width_});
  AllTokens dy_all = second_.backward_input(pass, d_act, dy);
  // The gradient overwrites the saved pre-activation, which is no longer needed.
  const Tensor& inner = saved.inner;
  if (gated_)
    unit_.backward(ctx, inner, d_act, inner);
  else
    activation_backward(ctx, ActivationFunction::kGelu, inner, d_act, inner);
  return {std::move(saved.inner), std::move(dy_all)};
}

void Mlp::backward_first(Pass& pass, const Tensor& dx, const Deferred& deferred) const {
  first_.backward_input(pass, dx, deferred.d_inner);
}

Mlp::Deferred Mlp::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                  Saved& saved) const {
  Deferred deferred = backward_second(pass, dy, saved);
  backward_first(pass, dx, deferred);
  return deferred;
}

void Mlp::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                          const Saved& saved, const Deferred& deferred) const {
  ArrivingTokens arriving(pass, x);
  second_.backward_weight(pass, dy, deferred.dy, saved.act);
  first_.backward_weight(pass, deferred.d_inner, arriving.wait());
}

}  // namespace trireme
