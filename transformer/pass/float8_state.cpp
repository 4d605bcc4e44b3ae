#include "transformer/pass/float8_state.h"

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/quantized/float8.h"
#include "engine/ops/rows/activation.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/pass/pass.h"

namespace trireme {
namespace {

constexpr int64_t kRoles = 3;
constexpr const char* kRoleNames[kRoles] = {".input", ".weight", ".gradient"};

Tensor row(const Tensor& of_all, int64_t index) {
  if (of_all.raw() == nullptr)
    return Tensor(nullptr, of_all.dtype(), {of_all.size(1)});  // planning
  return of_all.slice(0, index, index + 1).reshape({of_all.size(1)});
}

}  // namespace

Float8State::Float8State(const Float8Config& config, const ParameterList& list,
                         std::vector<ParamHandle> weights)
    : config_(config), weights_(std::move(weights)), layer_of_(list.specs().size(), -1) {
  for (int64_t l = 0; l < layers(); ++l) {
    const auto weight = static_cast<size_t>(weights_[static_cast<size_t>(l)]);
    layer_of_[weight] = l;
    names_.push_back(list.specs()[weight].name);
  }
}

void Float8State::allocate(Ctx& ctx) {
  has_history_ = false;
  if (config_.recipe != Float8Recipe::kDelayed || layers() == 0) return;
  const int64_t rows = kRoles * layers();
  block_ =
      Buffer("float8 scales", rows * (2 + config_.history) * dtype_size(DType::kF32), ctx.memory());
  fill_zero(ctx, block_.tensor(DType::kF32, {rows * (2 + config_.history)}));
  scale_from_amax(ctx, scales().reshape({rows}), amaxes().reshape({rows}), Float8Format::kE4M3, 0);
}

Tensor Float8State::part(int64_t first, int64_t columns) const {
  const Shape shape{kRoles * layers(), columns};
  if (block_.data() == nullptr) return Tensor(nullptr, DType::kF32, shape);  // planning
  return block_.tensor(DType::kF32, shape, first * shape[0] * dtype_size(DType::kF32));
}

int64_t Float8State::row_of(ParamHandle weight, Role role) const {
  const int64_t layer = layer_of_[static_cast<size_t>(weight)];
  TRIREME_CHECK(layer >= 0, "parameter ", weight, " is not the weight of a linear layer");
  return static_cast<int64_t>(role) * layers() + layer;
}

Float8Format Float8State::format_of(Role role) const {
  return role == Role::kGradient && config_.hybrid ? Float8Format::kE5M2 : Float8Format::kE4M3;
}

// Allocates both scratch tensors whether or not they are needed, so that a step matches its plan.
ConstTensor Float8State::scale_of(Pass& pass, ParamHandle weight, Role role, const ConstTensor& x,
                                  bool first_use, Activation& amax, Activation& own) const {
  Ctx& ctx = pass.ctx;
  amax = ctx.allocate("float8.amax", DType::kF32, Shape{1});
  own = ctx.allocate("float8.scale", DType::kF32, Shape{1});
  if (config_.recipe == Float8Recipe::kDelayed) {
    const int64_t index = row_of(weight, role);
    if (first_use) trireme::amax(ctx, row(amaxes(), index), x, true);
    if (has_history_) return row(scales(), index);
  }
  trireme::amax(ctx, amax, x, false);
  if (pass.groups != nullptr && !ctx.planning()) {
    const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
    for (Communicator* group : {pass.groups->tp.get(), pass.groups->cp.get()})
      if (group->size() > 1) group->all_reduce(amax, ReduceOp::kMax);
  }
  scale_from_amax(ctx, own, amax, format_of(role), config_.margin);
  return *own;
}

Float8State::Operand Float8State::quantize(Pass& pass, ParamHandle weight, Role role,
                                           const ConstTensor& x, bool transposed,
                                           bool first_use) const {
  Ctx& ctx = pass.ctx;
  const Float8Format format = format_of(role);
  const Float8Scaling scaling = config_.recipe != Float8Recipe::kBlockwise ? Float8Scaling::kTensor
                                : role == Role::kWeight                    ? Float8Scaling::kBlock
                                                        : Float8Scaling::kRowGroup;
  const Shape shape = transposed ? Shape{x.size(1), x.size(0)} : x.shape();
  Operand out;
  out.codes = ctx.allocate("float8.codes", DType::kU8, shape);
  out.inverse = ctx.allocate("float8.inverse", DType::kF32, float8_inverse_shape(scaling, shape));
  out.matrix = {*out.codes, *out.inverse, format, scaling};
  Activation amax, own;
  ConstTensor scale;
  if (scaling == Float8Scaling::kTensor)
    scale = scale_of(pass, weight, role, x, first_use, amax, own);
  if (transposed)
    quantize_float8_transposed(ctx, out.codes, out.inverse, x, scale, format, scaling);
  else if (scaling == Float8Scaling::kTensor)
    quantize_float8(ctx, out.codes, out.inverse, x, scale, format);
  else
    quantize_float8_groups(ctx, out.codes, out.inverse, x, format, scaling);
  return out;
}

void Float8State::forward(Pass& pass, ParamHandle weight, const Tensor& y, const ConstTensor& x,
                          const ConstTensor& w, const ConstTensor& bias) {
  const Operand a = quantize(pass, weight, Role::kInput, x, false, true),
                b = quantize(pass, weight, Role::kWeight, w, false, true);
  float8_gemm(pass.ctx, y, a.matrix, b.matrix, false);
  if (bias.present()) add_bias(pass.ctx, y, bias);
}

void Float8State::backward_input(Pass& pass, ParamHandle weight, const Tensor& dx,
                                 const ConstTensor& dy, const ConstTensor& w) {
  const Operand a = quantize(pass, weight, Role::kGradient, dy, false, true),
                b = quantize(pass, weight, Role::kWeight, w, true, false);
  float8_gemm(pass.ctx, dx, a.matrix, b.matrix, false);
}

void Float8State::backward_weight(Pass& pass, ParamHandle weight, const Tensor& dw,
                                  const ConstTensor& dy, const ConstTensor& x, bool accumulate) {
  const Operand a = quantize(pass, weight, Role::kGradient, dy, true, false),
                b = quantize(pass, weight, Role::kInput, x, true, false);
  float8_gemm(pass.ctx, dw, a.matrix, b.matrix, accumulate);
}

void Float8State::finish_step(Ctx& ctx, Communicator& tensor_parallel, Communicator& data_parallel,
                              const ConstTensor& scalars) {
  if (config_.recipe != Float8Recipe::kDelayed || layers() == 0) return;
  check_shape("float8 state", "scalars", scalars, {kStepScalarsBytes});
  StepScalars outcome;
  transfer(ctx, Tensor(&outcome, DType::kU8, {kStepScalarsBytes}), scalars);
  if (outcome.skip == 0) {
    for (Communicator* group : {&tensor_parallel, &data_parallel})
      if (group->size() > 1) group->all_reduce(amaxes(), ReduceOp::kMax);
    const auto update = [&](Role first, Role end, Float8Format format) {
      const int64_t from = static_cast<int64_t>(first) * layers(),
                    to = static_cast<int64_t>(end) * layers();
      const auto flat = [&](const Tensor& t) { return t.slice(0, from, to).reshape({to - from}); };
      update_delayed_scale(ctx, flat(scales()), histories().slice(0, from, to), flat(amaxes()),
                           format, config_.margin);
    };
    update(Role::kInput, Role::kGradient, Float8Format::kE4M3);
    update(Role::kGradient, Role{kRoles}, format_of(Role::kGradient));
    has_history_ = true;
  }
  fill_zero(ctx, amaxes());
}

std::vector<Float8State::Named> Float8State::saved() const {
  std::vector<Named> out;
  if (config_.recipe != Float8Recipe::kDelayed) return out;
  for (int64_t l = 0; l < layers(); ++l)
    for (int64_t role = 0; role < kRoles; ++role) {
      const std::string name = concat(names_[static_cast<size_t>(l)], kRoleNames[role]);
      out.push_back({name + "_scale", row(scales(), role * layers() + l)});
      out.push_back({name + "_amax_history", row(histories(), role * layers() + l)});
    }
  return out;
}

}  // namespace trireme
