#include "engine/ops/optimizer/optimizer_step.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/optimizer/flat_norm.kernels.h"
#include "engine/ops/optimizer/optimizer_step.kernels.h"

namespace trireme {
namespace {

void check_range(const char* op, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                 const ConstTensor& scalars) {
  TRIREME_CHECK(param.rank() == 1, op, ": param is ", param.shape(), ", expected (n)");
  check_contiguous(op, "param", param);
  check_operand(op, "grad", grad, sum_dtype(param.dtype()), param.shape());
  check_operand(op, "scalars", scalars, DType::kU8, {kStepScalarsBytes});
  if (!master.present()) return;
  TRIREME_CHECK(dtype_size(param.dtype()) == 2, op,
                ": master weights are not supported with parameters of ", param.dtype());
  check_operand(op, "master", master, DType::kF32, param.shape());
}

void check_state(const char* op, const char* operand, const Tensor& state, const Tensor& param) {
  const bool bf16_state = state.dtype() == DType::kBF16 && param.dtype() != DType::kF64;
  check_operand(op, operand, state, bf16_state ? DType::kBF16 : sum_dtype(param.dtype()),
                param.shape());
}

template <class T>
cpu::UpdateRange<T> update_range(const Tensor& param, const Tensor& master, const ConstTensor& grad,
                                 const Tensor& m, const Tensor& v, const RandomKey& rounding,
                                 const ElementIndex& index) {
  return {.param = param.as<T>(),
          .master = master.present() ? master.as<float>() : nullptr,
          .grad = grad.as<compute_t<T>>(),
          .m = m.present() ? m.raw() : nullptr,
          .v = v.present() ? v.raw() : nullptr,
          .bf16_state = m.present() && m.dtype() == DType::kBF16,
          .n = param.numel(),
          .key = rounding,
          .first = index.first,
          .width = index.width,
          .stride = index.stride,
          .offset = index.offset};
}

// Runs the rule's kernel: on a GPU with the scalars on the device, on the CPU with the coefficients
// computed from them, unless they say to skip.
template <class Rule>
void update(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
            const Tensor& m, const Tensor& v, const ConstTensor& scalars,
            const typename Rule::Args& args) {
  check_range(Rule::kOp, param, master, grad, scalars);
  if (m.present()) check_state(Rule::kOp, "m", m, param);
  if (v.present()) check_operand(Rule::kOp, "v", v, m.dtype(), param.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  dispatch_float(Rule::kOp, param.dtype(), [&]<class T>() {
    cpu::UpdateRange<T> range =
        update_range<T>(param, master, grad, m, v, args.rounding, args.index);
    if (ctx.gpu != nullptr)
      return cuda::apply_rule(
          *ctx.gpu,
          cuda::RuleStep<Rule, T>{range, static_cast<const StepScalars*>(scalars.raw()), args});
    StepScalars s;
    std::memcpy(&s, scalars.raw(), sizeof s);
    if (s.skip != 0) return;
    range.key.stream = rounding_stream(args.rounding, s.count);
    TRIREME_KERNEL(apply_rule<cpu::RuleUpdate<Rule, T>>)
    ({range, Rule::template coefficients<compute_t<T>>(args, s)}, ctx.threads);
  });
}

}  // namespace

void adamw_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                const Tensor& m, const Tensor& v, const ConstTensor& scalars,
                const AdamWArgs& args) {
  TRIREME_CHECK(m.present() && v.present(), "adamw_step: m or v is absent");
  update<AdamWRule>(ctx, param, master, grad, m, v, scalars, args);
}

void sgd_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
              const Tensor& m, const ConstTensor& scalars, const SgdArgs& args) {
  TRIREME_CHECK(m.present() == (args.momentum != 0.0), "sgd_step: momentum is ", args.momentum,
                m.present() ? " but m is given" : " but m is absent");
  update<SgdRule>(ctx, param, master, grad, m, {}, scalars, args);
}

void lion_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
               const Tensor& m, const ConstTensor& scalars, const LionArgs& args) {
  TRIREME_CHECK(m.present(), "lion_step: m is absent");
  update<LionRule>(ctx, param, master, grad, m, {}, scalars, args);
}

void sum_of_squares(Ctx& ctx, const Tensor& out, const ConstTensor& x) {
  check_contiguous("sum_of_squares", "x", x);
  check_operand("sum_of_squares", "out", out, DType::kF64, {1});
  const int64_t blocks = ceil_div(x.numel(), cpu::kSquaresBlock);
  const Activation partial = ctx.allocate("norm.squares", DType::kF64, Shape{blocks});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  auto* sums = partial->as<double>();
  if (ctx.gpu != nullptr)
    return dispatch_float("sum_of_squares", x.dtype(), [&]<class T>() {
      cuda::sum_of_squares<T>(*ctx.gpu, out.as<double>(), sums, x.as<T>(), x.numel());
    });
  dispatch_float("sum_of_squares", x.dtype(), [&]<class T>() {
    TRIREME_KERNEL(squares<T>)(sums, x.as<T>(), x.numel(), ctx.threads);
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += sums[b];
  *out.as<double>() += total;
}

void first_non_finite(Ctx& ctx, const Tensor& first, const ConstTensor& x, int64_t begin,
                      const ConstTensor& scalars) {
  check_contiguous("first_non_finite", "x", x);
  check_operand("first_non_finite", "first", first, DType::kI64, {1});
  if (scalars.present())
    check_operand("first_non_finite", "scalars", scalars, DType::kU8, {kStepScalarsBytes});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  auto* least = first.as<int64_t>();
  const auto* outcome =
      scalars.present() ? static_cast<const StepScalars*>(scalars.raw()) : nullptr;
  if (ctx.gpu != nullptr)
    return dispatch_float("first_non_finite", x.dtype(), [&]<class T>() {
      cuda::find_non_finite<T>(*ctx.gpu, least, x.as<T>(), x.numel(), begin, outcome);
    });
  if (outcome != nullptr && outcome->skip == 0) return;
  int64_t found = kNotFound;
  dispatch_float("first_non_finite", x.dtype(), [&]<class T>() {
    TRIREME_KERNEL(find_non_finite<T>)(&found, x.as<T>(), x.numel(), ctx.threads);
  });
  if (found != kNotFound) *least = std::min(*least, begin + found);
}

}  // namespace trireme
