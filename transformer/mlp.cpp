#include "transformer/mlp.h"

#include <cmath>

#include "engine/ops/activation.h"

namespace trireme {

Mlp::Mlp(const ModelConfig& config, ParameterList& list, const std::string& prefix, int block)
    : gated_(config.family == ModelFamily::kLlama), width_(config.intermediate_size) {
  const int64_t c = config.hidden_size;
  const double std = config.initializer_range;
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  if (gated_) {
    first_ = Linear(list, {{prefix + ".gate_proj", width_}, {prefix + ".up_proj", width_}}, c,
                    config.mlp_bias, std, block);
    second_ =
        Linear(list, {{prefix + ".down_proj", c}}, width_, config.mlp_bias, residual_std, block);
  } else {
    first_ = Linear(list, {{prefix + ".c_fc", width_}}, c, config.mlp_bias, std, block);
    second_ = Linear(list, {{prefix + ".c_proj", c}}, width_, config.mlp_bias, residual_std, block);
  }
}

Activation Mlp::activate(Pass& pass, const ConstTensor& inner) const {
  Activation act = pass.ctx.allocate("mlp.act", inner.dtype(), Shape{inner.size(0), width_});
  if (gated_)
    silu_gated_forward(pass.ctx, act, inner);
  else
    gelu_forward(pass.ctx, act, inner);
  return act;
}

void Mlp::forward(Pass& pass, const Tensor& y, const ConstTensor& x, Saved* saved,
                  bool keep_act) const {
  Activation inner = pass.ctx.allocate("mlp.inner", x.dtype(), Shape{x.size(0), first_.out()});
  first_.forward(pass, inner, x);
  Activation act = activate(pass, inner);
  second_.forward(pass, y, act);
  if (saved == nullptr) return;
  saved->inner = std::move(inner);
  if (keep_act) saved->act = std::move(act);
}

Mlp::Deferred Mlp::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                  Saved& saved) const {
  Ctx& ctx = pass.ctx;
  if (!saved.act.present()) saved.act = activate(pass, saved.inner);
  Activation d_act = ctx.allocate("mlp.d_act", dy.dtype(), Shape{dy.size(0), width_});
  second_.backward_input(pass, d_act, dy);
  // The gradient takes the place of the saved pre-activation: nothing needs that any more.
  const Tensor& inner = saved.inner;
  if (gated_)
    silu_gated_backward(ctx, inner, d_act, inner);
  else
    gelu_backward(ctx, inner, d_act, inner);
  first_.backward_input(pass, dx, inner);
  return {std::move(saved.inner)};
}

void Mlp::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                          const Saved& saved, const Deferred& deferred) const {
  second_.backward_weight(pass, dy, saved.act);
  first_.backward_weight(pass, deferred.d_inner, x);
}

}  // namespace trireme
