#include "engine/ops/optimizer_step.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/ops/cpu/flat_norm.h"
#include "engine/ops/cpu/optimizer_step.h"

namespace trireme {
namespace {

StepScalars read_scalars(const ConstTensor& view) {
  StepScalars scalars;
  std::memcpy(&scalars, view.raw(), sizeof scalars);
  return scalars;
}

void check_range(const char* op, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                 const ConstTensor& scalars) {
  TRIREME_CHECK(param.rank() == 1, op, ": param is ", param.shape(), ", expected (n)");
  check_contiguous(op, "param", param);
  check_operand(op, "grad", grad, sum_dtype(param.dtype()), param.shape());
  check_operand(op, "scalars", scalars, DType::kU8, {kStepScalarsBytes});
  if (!master.present()) return;
  TRIREME_CHECK(dtype_size(param.dtype()) == 2, op, ": master weights beside ", param.dtype(),
                " parameters");
  check_operand(op, "master", master, DType::kF32, param.shape());
}

void check_state(const char* op, const char* operand, const Tensor& state, const Tensor& param) {
  const bool bf16_state = state.dtype() == DType::kBF16 && param.dtype() != DType::kF64;
  check_operand(op, operand, state, bf16_state ? DType::kBF16 : sum_dtype(param.dtype()),
                param.shape());
}

template <class T>
cpu::UpdateRange<T> update_range(const Tensor& param, const Tensor& master, const ConstTensor& grad,
                                 const Tensor& m, const Tensor& v, const StepScalars& scalars,
                                 const RandomKey& rounding, const ElementIndex& index) {
  // Each update has random bits of its own: with the same bits every time, an element whose bits
  // say "up" would drift.
  const auto count = static_cast<uint64_t>(scalars.count);
  return {.param = param.as<T>(),
          .master = master.present() ? master.as<float>() : nullptr,
          .grad = grad.as<compute_t<T>>(),
          .m = m.present() ? m.raw() : nullptr,
          .v = v.present() ? v.raw() : nullptr,
          .bf16_state = m.present() && m.dtype() == DType::kBF16,
          .n = param.numel(),
          .key = {rounding.seed, substream(rounding.stream, count)},
          .first = index.first,
          .width = index.width,
          .stride = index.stride,
          .offset = index.offset};
}

// 1 - beta^count without cancellation for beta near 1.
double bias_correction(double beta, int64_t count) {
  return beta > 0 ? -std::expm1(static_cast<double>(count) * std::log(beta)) : 1.0;
}

}  // namespace

void adamw_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                const Tensor& m, const Tensor& v, const ConstTensor& scalars,
                const AdamWArgs& args) {
  check_range("adamw_step", param, master, grad, scalars);
  check_state("adamw_step", "m", m, param);
  check_operand("adamw_step", "v", v, m.dtype(), param.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  const StepScalars s = read_scalars(scalars);
  if (s.skip != 0) return;
  const double lr = s.learning_rate * args.lr_multiplier;
  dispatch_float("adamw_step", param.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::AdamWUpdate<T> update{
        .range = update_range<T>(param, master, grad, m, v, s, args.rounding, args.index),
        .grad_multiplier = static_cast<F>(s.grad_multiplier),
        .beta1 = static_cast<F>(args.beta1),
        .beta2 = static_cast<F>(args.beta2),
        .eps = static_cast<F>(args.eps),
        .one_minus_beta1 = static_cast<F>(1.0 - args.beta1),
        .one_minus_beta2 = static_cast<F>(1.0 - args.beta2),
        .step = static_cast<F>(lr / bias_correction(args.beta1, s.count)),
        .inverse_sqrt_bias2 = static_cast<F>(1.0 / std::sqrt(bias_correction(args.beta2, s.count))),
        .decay = static_cast<F>(args.decoupled ? lr * args.weight_decay : args.weight_decay),
        .decoupled = args.decoupled,
    };
    TRIREME_KERNEL(adamw<T>)(update, ctx.threads);
  });
}

void sgd_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
              const Tensor& m, const ConstTensor& scalars, const SgdArgs& args) {
  check_range("sgd_step", param, master, grad, scalars);
  TRIREME_CHECK(m.present() == (args.momentum != 0.0), "sgd_step: momentum is ", args.momentum,
                m.present() ? " but m is given" : " but m is absent");
  if (m.present()) check_state("sgd_step", "m", m, param);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  const StepScalars s = read_scalars(scalars);
  if (s.skip != 0) return;
  const double lr = s.learning_rate * args.lr_multiplier;
  dispatch_float("sgd_step", param.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::SgdUpdate<T> update{
        .range = update_range<T>(param, master, grad, m, {}, s, args.rounding, args.index),
        .grad_multiplier = static_cast<F>(s.grad_multiplier),
        .learning_rate = static_cast<F>(lr),
        .momentum = static_cast<F>(args.momentum),
        .weight_decay = static_cast<F>(args.weight_decay),
        .nesterov = args.nesterov,
        .first = s.count == 1,
    };
    TRIREME_KERNEL(sgd<T>)(update, ctx.threads);
  });
}

void sum_of_squares(Ctx& ctx, const Tensor& out, const ConstTensor& x) {
  check_contiguous("sum_of_squares", "x", x);
  check_operand("sum_of_squares", "out", out, DType::kF64, {1});
  const int64_t blocks = ceil_div(x.numel(), cpu::kSquaresBlock);
  const Activation partial = ctx.allocate("norm.squares", DType::kF64, Shape{blocks});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  auto* sums = partial->as<double>();
  dispatch_float("sum_of_squares", x.dtype(), [&]<class T>() {
    TRIREME_KERNEL(squares<T>)(sums, x.as<T>(), x.numel(), ctx.threads);
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += sums[b];
  *out.as<double>() += total;
}

int64_t first_non_finite(Ctx& ctx, const ConstTensor& x) {
  check_contiguous("first_non_finite", "x", x);
  if (ctx.planning()) return -1;
  const TimeScope scope(ctx.profile, TimeCategory::kOptimizer);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t first = kNone;
  dispatch_float("first_non_finite", x.dtype(), [&]<class T>() {
    TRIREME_KERNEL(find_non_finite<T>)(&first, x.as<T>(), x.numel(), ctx.threads);
  });
  return first == kNone ? -1 : first;
}

}  // namespace trireme
