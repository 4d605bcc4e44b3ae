#include "transformer/layers/norm.h"

#include "transformer/pass/frozen_gradient.h"

namespace trireme {

ParamHandle Norm::add_vector(const Layout& layout, ParameterList& list, const std::string& name,
                             int64_t width, InitKind init, int block) const {
  const DimSlice slice = replicated_slice(width, layout);
  return list.add({.name = name,
                   .shape = Shape{width},
                   .init = init,
                   .block = block,
                   .partial = slice.partial,
                   .copies = slice.copies,
                   .copy = slice.copy});
}

Norm::Norm(const ModelConfig& config, const Layout& layout, ParameterList& list,
           const std::string& prefix, int block)
    : layer_norm_(config.layer_norm),
      eps_(config.norm_eps),
      gamma_offset_(config.zero_centered_gamma ? 1 : 0) {
  const int64_t width = config.hidden_size;
  weight_ = add_vector(layout, list, prefix + ".weight", width,
                       config.zero_centered_gamma ? InitKind::kZeros : InitKind::kOnes, block);
  if (layer_norm_)
    bias_ = add_vector(layout, list, prefix + ".bias", width, InitKind::kZeros, block);
}

Norm::Norm(const Layout& layout, ParameterList& list, const std::string& prefix, int64_t width,
           double eps, int block)
    : layer_norm_(false), eps_(eps) {
  weight_ = add_vector(layout, list, prefix + ".weight", width, InitKind::kOnes, block);
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
    rmsnorm_forward(ctx, y, saved.rstd, h, x, residual, pass.params.value(weight_), eps_,
                    gamma_offset_);
  }
}

void Norm::backward(Pass& pass, const Tensor& dx, const ConstTensor& dy, const ConstTensor& dh_in,
                    const ConstTensor& h, const Saved& saved) const {
  Activation unused[2];  // scratch for gradients of frozen parameters
  const GradientSlot dw = gradient_or_scratch(pass, weight_, unused[0]);
  if (layer_norm_) {
    const GradientSlot db = gradient_or_scratch(pass, bias_, unused[1]);
    layernorm_backward(pass.ctx, dx, dw.grad, db.grad, dy, dh_in, h, pass.params.value(weight_),
                       saved.mean, saved.rstd, dw.accumulate);
  } else {
    rmsnorm_backward(pass.ctx, dx, dw.grad, dy, dh_in, h, pass.params.value(weight_), saved.rstd,
                     dw.accumulate, gamma_offset_);
  }
}

}  // namespace trireme
