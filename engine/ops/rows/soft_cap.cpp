#include "engine/ops/rows/soft_cap.h"

#include <cmath>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/soft_cap.kernels.h"

namespace trireme {
namespace {

void check_cap(const char* op, double cap) {
  TRIREME_CHECK(cap > 0 && std::isfinite(cap), op, ": cap is ", cap,
                ", expected a finite number above 0");
}

}  // namespace

void soft_cap_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x, double cap) {
  const char* op = "soft_cap_forward";
  check_cap(op, cap);
  check_contiguous(op, "x", x);
  check_operand(op, "y", y, x.dtype(), x.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    const auto limit = static_cast<compute_t<T>>(cap);
    if (ctx.gpu != nullptr)
      return cuda::soft_cap_forward<T>(*ctx.gpu, y.as<T>(), x.as<T>(), x.numel(), limit);
    TRIREME_KERNEL(soft_cap_forward<T>)(y.as<T>(), x.as<T>(), x.numel(), limit, ctx.threads);
  });
}

void soft_cap_backward(Ctx& ctx, const Tensor& d, const ConstTensor& y, double cap) {
  const char* op = "soft_cap_backward";
  check_cap(op, cap);
  check_contiguous(op, "d", d);
  check_operand(op, "y", y, sum_dtype(d.dtype()), d.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, d.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const auto limit = static_cast<F>(cap);
    if (ctx.gpu != nullptr)
      return cuda::soft_cap_backward<T>(*ctx.gpu, d.as<T>(), y.as<F>(), d.numel(), limit);
    TRIREME_KERNEL(soft_cap_backward<T>)(d.as<T>(), y.as<F>(), d.numel(), limit, ctx.threads);
  });
}

}  // namespace trireme
