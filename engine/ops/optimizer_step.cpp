#include "engine/ops/optimizer_step.h"

#include <cmath>
#include <cstring>

#include "engine/ops/cpu/optimizer_step.h"

namespace trireme {
namespace {

struct Range {
  Tensor param, master;
  ConstTensor grad;
};

StepScalars read_scalars(const char* op, const ConstTensor& scalars) {
  check_shape(op, "scalars", scalars, {kStepScalarsBytes});
  check_dtype(op, "scalars", scalars, DType::kU8);
  StepScalars out;
  std::memcpy(&out, scalars.raw(), sizeof out);
  return out;
}

void check_range(const char* op, const Range& r) {
  const bool f64 = r.param.dtype() == DType::kF64;
  const Shape shape{r.param.numel()};
  check_shape(op, "param", r.param, shape);
  check_contiguous(op, "param", r.param);
  check_shape(op, "grad", r.grad, shape);
  check_contiguous(op, "grad", r.grad);
  check_dtype(op, "grad", r.grad, f64 ? DType::kF64 : DType::kF32);
  if (!r.master.present()) return;
  check_shape(op, "master", r.master, shape);
  check_contiguous(op, "master", r.master);
  check_dtype(op, "master", r.master, DType::kF32);
  TRIREME_CHECK(dtype_size(r.param.dtype()) == 2, op, ": master weights beside ", r.param.dtype(),
                " parameters");
}

void check_state(const char* op, const char* name, const Tensor& state, const Tensor& param) {
  check_shape(op, name, state, param.shape());
  check_contiguous(op, name, state);
  const bool f64 = param.dtype() == DType::kF64;
  TRIREME_CHECK(f64 ? state.dtype() == DType::kF64
                    : state.dtype() == DType::kF32 || state.dtype() == DType::kBF16,
                op, ": ", name, " is ", state.dtype(), " for ", param.dtype(), " parameters");
}

template <class T>
cpu::UpdatedParams<T> updated_params(const Range& r, RandomKey rounding, int64_t count,
                                     int64_t element0) {
  using C = compute_t<T>;
  // Every update draws other numbers for the same element.
  rounding.stream = substream(rounding.stream, static_cast<uint64_t>(count));
  return {r.param.as<T>(), r.master.present() ? r.master.as<C>() : nullptr, r.grad.as<C>(),
          r.param.numel(), std::is_same_v<T, bf16> && !r.master.present(),  rounding,
          element0};
}

}  // namespace

void adamw_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
                const Tensor& m, const Tensor& v, const ConstTensor& scalars,
                const AdamWArgs& args) {
  const char* op = "adamw_step";
  const TimeScope timed(ctx.profile, TimeCategory::kOptimizer);
  const Range range{param, master, grad};
  check_range(op, range);
  check_state(op, "m", m, param);
  check_state(op, "v", v, param);
  TRIREME_CHECK(m.dtype() == v.dtype(), op, ": m is ", m.dtype(), ", v is ", v.dtype());
  if (ctx.planning()) return;
  const StepScalars s = read_scalars(op, scalars);
  if (s.skip != 0) return;
  const auto correction = [&](double beta) {
    return 1.0 / (1.0 - std::pow(beta, static_cast<double>(s.count)));
  };
  dispatch_float(op, param.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const cpu::AdamWUpdate<T> update{
        .p = updated_params<T>(range, args.rounding, s.count, args.element0),
        .m = m.raw(),
        .v = v.raw(),
        .bf16_state = m.dtype() == DType::kBF16,
        .decoupled = args.decoupled,
        .grad_multiplier = static_cast<C>(s.grad_multiplier),
        .lr = static_cast<C>(s.learning_rate * args.lr_multiplier),
        .beta1 = static_cast<C>(args.beta1),
        .beta2 = static_cast<C>(args.beta2),
        .eps = static_cast<C>(args.eps),
        .weight_decay = static_cast<C>(args.weight_decay),
        .m_correction = static_cast<C>(correction(args.beta1)),
        .v_correction = static_cast<C>(correction(args.beta2))};
    TRIREME_KERNEL(adamw_step<T>)(update, ctx.threads);
  });
}

void sgd_step(Ctx& ctx, const Tensor& param, const Tensor& master, const ConstTensor& grad,
              const Tensor& m, const ConstTensor& scalars, const SgdArgs& args) {
  const char* op = "sgd_step";
  const TimeScope timed(ctx.profile, TimeCategory::kOptimizer);
  const Range range{param, master, grad};
  check_range(op, range);
  TRIREME_CHECK(m.present() || args.momentum == 0.0, op, ": momentum ", args.momentum,
                " without a momentum buffer");
  if (m.present()) check_state(op, "m", m, param);
  if (ctx.planning()) return;
  const StepScalars s = read_scalars(op, scalars);
  if (s.skip != 0) return;
  dispatch_float(op, param.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const cpu::SgdUpdate<T> update{
        .p = updated_params<T>(range, args.rounding, s.count, args.element0),
        .m = m.present() ? m.raw() : nullptr,
        .bf16_state = m.present() && m.dtype() == DType::kBF16,
        .nesterov = args.nesterov,
        .first = s.count == 1,
        .grad_multiplier = static_cast<C>(s.grad_multiplier),
        .lr = static_cast<C>(s.learning_rate * args.lr_multiplier),
        .momentum = static_cast<C>(args.momentum),
        .weight_decay = static_cast<C>(args.weight_decay)};
    TRIREME_KERNEL(sgd_step<T>)(update, ctx.threads);
  });
}

void sum_of_squares(Ctx& ctx, const Tensor& out, const ConstTensor& x) {
  const char* op = "sum_of_squares";
  const TimeScope timed(ctx.profile, TimeCategory::kOptimizer);
  check_shape(op, "out", out, {1});
  check_dtype(op, "out", out, DType::kF64);
  check_contiguous(op, "x", x);
  const int64_t blocks = ceil_div(x.numel(), cpu::kSquaresBlock);
  const Activation partial = ctx.allocate("sum_of_squares.partial", DType::kF64, Shape{blocks});
  if (ctx.planning()) return;
  double* sums = partial->as<double>();
  dispatch_float(op, x.dtype(), [&]<class T>() {
    TRIREME_KERNEL(sum_of_squares<T>)(sums, x.as<T>(), x.numel(), ctx.threads);
  });
  for (int64_t b = 0; b < blocks; ++b) *out.as<double>() += sums[b];
}

int64_t first_non_finite(Ctx&, const ConstTensor& x) {
  check_contiguous("first_non_finite", "x", x);
  return dispatch_float("first_non_finite", x.dtype(), [&]<class T>() {
    const T* data = x.as<T>();
    for (int64_t i = 0; i < x.numel(); ++i)
      if (!std::isfinite(static_cast<compute_t<T>>(data[i]))) return i;
    return int64_t{-1};
  });
}

}  // namespace trireme
