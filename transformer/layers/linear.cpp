#include "transformer/layers/linear.h"

#include "transformer/pass/float8_state.h"
#include "transformer/pass/weight.h"

namespace trireme {
namespace {

// The three products of the layer with this weight, in its own dtype or in FP8.
void product(Pass& pass, ParamHandle weight, const Tensor& y, const ConstTensor& x, const Weight& w,
             const ConstTensor& bias) {
  if (pass.float8 != nullptr)
    return pass.float8->forward(pass, weight, y, x, static_cast<const Tensor&>(w), bias);
  w.multiply(pass.ctx, y, x, bias);
}

void input_gradient(Pass& pass, ParamHandle weight, const Tensor& dx, const ConstTensor& dy,
                    const ConstTensor& w) {
  if (pass.float8 != nullptr) return pass.float8->backward_input(pass, weight, dx, dy, w);
  linear_backward_input(pass.ctx, dx, dy, w, false);
}

void weight_gradient(Pass& pass, ParamHandle weight, const GradientSlot& dw, const ConstTensor& dy,
                     const ConstTensor& x) {
  if (pass.float8 != nullptr)
    return pass.float8->backward_weight(pass, weight, dw.grad, dy, x, dw.accumulate);
  linear_backward_weight(pass.ctx, dw.grad, dy, x, dw.accumulate);
}

}  // namespace

ColumnLinear::ColumnLinear(ParameterList& list, const std::vector<LinearPart>& parts, int64_t in,
                           const LinearInit& init, int block) {
  for (const LinearPart& part : parts) {
    last_weight_ = list.add({.name = part.name + ".weight",
                             .shape = Shape{part.out, in},
                             .box = box_of(part.rows, whole_slice(in)),
                             .init = InitKind::kNormal,
                             .init_std = init.std,
                             .decay = true,
                             .block = block,
                             .fused_with_previous = first_weight_ >= 0,
                             .partial = part.rows.partial,
                             .linear = true,
                             .copies = part.rows.copies,
                             .copy = part.rows.copy});
    if (first_weight_ < 0) first_weight_ = last_weight_;
    out_ += part.rows.size();
  }
  add_bias_parameters(list, parts, init, block);
  int64_t first_output = 0;
  ParamHandle weight = first_weight_;
  for (const LinearPart& part : parts) {
    adapters_.add_column(list, part.name, weight++, part.rows, first_output);
    first_output += part.rows.size();
  }
}

void ColumnLinear::add_bias_parameters(ParameterList& list, const std::vector<LinearPart>& parts,
                                       const LinearInit& init, int block) {
  if (!init.bias) return;
  for (const LinearPart& part : parts) {
    last_bias_ = list.add({.name = part.name + ".bias",
                           .shape = Shape{part.out},
                           .box = box_of(part.rows),
                           .block = block,
                           .fused_with_previous = first_bias_ >= 0,
                           .partial = part.rows.partial,
                           .copies = part.rows.copies,
                           .copy = part.rows.copy});
    if (first_bias_ < 0) first_bias_ = last_bias_;
  }
}

void ColumnLinear::multiply(Pass& pass, const TokenRange& tokens, const Tensor& y,
                            const ConstTensor& x, const Activation& squares,
                            const Weight& weight) const {
  const ConstTensor bias =
      first_bias_ < 0 ? ConstTensor() : pass.params.value(first_bias_, last_bias_);
  const bool later = adapters_.scales_outputs();
  product(pass, first_weight_, y, x, weight, later ? ConstTensor() : bias);
  adapters_.forward(pass, tokens, y, x, squares, weight);
  if (later && bias.present()) add_bias(pass.ctx, y, bias);
}

void ColumnLinear::forward(Pass& pass, const Tensor& y, const ConstTensor& x) const {
  const Weight weight(pass, first_weight_, last_weight_);
  const Activation squares = adapters_.row_squares(pass, weight);
  gather_tokens_with(pass, x, [&](const TokenRange& rows, const ConstTensor& part) {
    multiply(pass, rows, rows.of(y), part, squares, weight);
  });
}

void ColumnLinear::input_products(Pass& pass, const TokenRange& tokens, const Tensor& dx,
                                  const ConstTensor& dy, const Activation& squares,
                                  const Tensor& weight) const {
  const AllTokens d = adapters_.through_weight(pass, dy, squares);
  input_gradient(pass, first_weight_, dx, d, weight);
  adapters_.backward_input(pass, tokens, dx, d, squares, weight);
}

void ColumnLinear::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const {
  const Weight weight(pass, first_weight_, last_weight_);
  const Activation squares = adapters_.row_squares(pass, weight);
  sum_over_tensor_ranks_with(pass, dx, [&](const TokenRange& rows, const Tensor& out) {
    input_products(pass, rows, out, rows.of(dy), squares, weight);
  });
}

void ColumnLinear::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const {
  adapters_.backward_weight(pass, dy, x, first_weight_, last_weight_);
  if (!pass.params.trained(first_weight_)) return;
  weight_gradient(pass, first_weight_, pass.params.gradient(first_weight_, last_weight_), dy, x);
  if (first_bias_ < 0) return;
  const GradientSlot db = pass.params.gradient(first_bias_, last_bias_);
  bias_backward(pass.ctx, db.grad, dy, db.accumulate);
}

ReplicatedLinear::ReplicatedLinear(ParameterList& list, const Layout& layout,
                                   std::vector<LinearPart> parts, int64_t in,
                                   const LinearInit& init, int block) {
  for (LinearPart& part : parts) part.rows = replicated_slice(part.out, layout);
  products_ = ColumnLinear(list, parts, in, init, block);
}

void ReplicatedLinear::forward(Pass& pass, const Tensor& y, const ConstTensor& x) const {
  const Weight weight(pass, products_.first_weight_, products_.last_weight_);
  const Activation squares = products_.adapters_.row_squares(pass, weight);
  products_.multiply(pass, rows_of(pass, x), y, x, squares, weight);
}

void ReplicatedLinear::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const {
  const Weight weight(pass, products_.first_weight_, products_.last_weight_);
  const Activation squares = products_.adapters_.row_squares(pass, weight);
  products_.input_products(pass, rows_of(pass, dy), dx, dy, squares, weight);
}

void ReplicatedLinear::backward_weight(Pass& pass, const ConstTensor& dy,
                                       const ConstTensor& x) const {
  products_.backward_weight(pass, dy, x);
}

RowLinear::RowLinear(ParameterList& list, const Layout& layout, const std::string& name,
                     int64_t out, int64_t in, const DimSlice& columns, const LinearInit& init,
                     int block) {
  weight_ = list.add({.name = name + ".weight",
                      .shape = Shape{out, in},
                      .box = box_of(whole_slice(out), columns),
                      .init = InitKind::kNormal,
                      .init_std = init.std,
                      .decay = true,
                      .block = block,
                      .linear = true});
  if (init.bias) {
    const DimSlice rows = replicated_slice(out, layout);
    bias_ = list.add({.name = name + ".bias",
                      .shape = Shape{out},
                      .block = block,
                      .partial = rows.partial,
                      .copies = rows.copies,
                      .copy = rows.copy});
  }
  adapters_.add_row(list, name, weight_, columns);
}

void RowLinear::forward(Pass& pass, const Tensor& y, const ConstTensor& x) const {
  const ConstTensor bias = bias_ < 0 ? ConstTensor() : pass.params.value(bias_);
  const bool split = pass.groups != nullptr && pass.groups->layout.tp.size > 1;
  const bool later = split || adapters_.scales_outputs();
  const Weight weight(pass, weight_);
  const Activation squares = adapters_.row_squares(pass, weight);
  sum_over_tensor_ranks_with(pass, y, [&](const TokenRange& rows, const Tensor& out) {
    product(pass, weight_, out, rows.of(x), weight, later ? ConstTensor() : bias);
    adapters_.forward(pass, rows, out, rows.of(x), squares, weight);
  });
  if (later && bias.present()) add_bias(pass.ctx, y, bias);
}

AllTokens RowLinear::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const {
  const Weight weight(pass, weight_);
  const Activation squares = adapters_.row_squares(pass, weight);
  return gather_tokens_with(pass, dy, [&](const TokenRange& rows, const ConstTensor& part) {
    const AllTokens d = adapters_.through_weight(pass, part, squares);
    input_gradient(pass, weight_, rows.of(dx), d, weight);
    adapters_.backward_input(pass, rows, rows.of(dx), d, squares, weight);
  });
}

void RowLinear::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& dy_all,
                                const ConstTensor& x) const {
  adapters_.backward_weight(pass, dy_all, x, weight_, weight_);
  if (!pass.params.trained(weight_)) return;
  weight_gradient(pass, weight_, pass.params.gradient(weight_), dy_all, x);
  if (bias_ < 0) return;
  const GradientSlot db = pass.params.gradient(bias_);
  bias_backward(pass.ctx, db.grad, dy, db.accumulate);
}

}  // namespace trireme
