#include "transformer/linear.h"

namespace trireme {

Linear::Linear(ParameterList& list, const std::vector<LinearPart>& parts, int64_t in, bool bias,
               double init_std, int block)
    : in_(in) {
  for (const LinearPart& part : parts) {
    last_weight_ = list.add({.name = part.name + ".weight",
                             .shape = Shape{part.out, in},
                             .init = InitKind::kNormal,
                             .init_std = init_std,
                             .decay = true,
                             .block = block,
                             .fused_with_previous = first_weight_ >= 0});
    if (first_weight_ < 0) first_weight_ = last_weight_;
    out_ += part.out;
  }
  if (!bias) return;
  for (const LinearPart& part : parts) {
    last_bias_ = list.add({.name = part.name + ".bias",
                           .shape = Shape{part.out},
                           .block = block,
                           .fused_with_previous = first_bias_ >= 0});
    if (first_bias_ < 0) first_bias_ = last_bias_;
  }
}

void Linear::forward(Pass& pass, const Tensor& y, const ConstTensor& x) const {
  const ConstTensor bias =
      first_bias_ < 0 ? ConstTensor() : pass.params.value(first_bias_, last_bias_);
  linear_forward(pass.ctx, y, x, pass.params.value(first_weight_, last_weight_), bias);
}

void Linear::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                            bool accumulate) const {
  linear_backward_input(pass.ctx, dx, dy, pass.params.value(first_weight_, last_weight_),
                        accumulate);
}

void Linear::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const {
  const GradientSlot dw = pass.params.gradient(first_weight_, last_weight_);
  linear_backward_weight(pass.ctx, dw.grad, dy, x, dw.accumulate);
  if (first_bias_ < 0) return;
  const GradientSlot db = pass.params.gradient(first_bias_, last_bias_);
  bias_backward(pass.ctx, db.grad, dy, db.accumulate);
}

}  // namespace trireme
