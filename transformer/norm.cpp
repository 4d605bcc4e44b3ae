#include "transformer/norm.h"

namespace trireme {

Norm::Norm(const ModelConfig& config, const Layout& layout, ParameterList& list,
           const std::string& prefix, int block)
    : layer_norm_(config.layer_norm), eps_(config.norm_eps) {
  const DimSlice slice = replicated_slice(config.hidden_size, layout);
  const auto vector = [&](const char* suffix, InitKind init) {
    return list.add({.name = prefix + suffix,
                     .shape = Shape{config.hidden_size},
                     .init = init,
                     .block = block,
                     .partial = slice.partial,
                     .copies = slice.copies,
                     .copy = slice.copy});
  };
  weight_ = vector(".weight", InitKind::kOnes);
  if (layer_norm_) bias_ = vector(".bias", InitKind::kZeros);
}

void Norm::forward(Pass& pass, const Tensor& y, const Tensor& h, const ConstTensor& x,
                   const ConstTensor& residual, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const Shape rows{x.size(0)};
  const DType statistics = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  saved.rstd = ctx.allocate("norm.rstd", statistics, rows);
  if (layer_norm_) {
    saved.mean = ctx.allocate("norm.mean", statistics, rows);
    layernorm_forward(ctx, y, saved.mean, saved.rstd, h, x, residual, pass.params.value(weight_),
                      pass.params.value(bias_), eps_);
  } else {
    rmsnorm_forward(ctx, y, saved.rstd, h, x, residual, pass.params.value(weight_), eps_);
  }
}

void Norm::backward(Pass& pass, const Tensor& dx, const ConstTensor& dy, const ConstTensor& dh_in,
                    const ConstTensor& h, const Saved& saved) const {
  const GradientSlot dw = pass.params.gradient(weight_);
  if (layer_norm_) {
    const GradientSlot db = pass.params.gradient(bias_);
    layernorm_backward(pass.ctx, dx, dw.grad, db.grad, dy, dh_in, h, pass.params.value(weight_),
                       saved.mean, saved.rstd, dw.accumulate);
  } else {
    rmsnorm_backward(pass.ctx, dx, dw.grad, dy, dh_in, h, pass.params.value(weight_), saved.rstd,
                     dw.accumulate);
  }
}

}  // namespace trireme
