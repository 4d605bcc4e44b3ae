#include "engine/ops/norm/head_norm.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/norm/head_norm.kernels.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
namespace {

template <class T>
cpu::HeadRows<const T> rows_of(const ConstTensor& t) {
  return {t.as<T>(), t.stride(0), t.stride(1)};
}
template <class T>
cpu::HeadRows<T> rows_of(const Tensor& t) {
  return {t.as<T>(), t.stride(0), t.stride(1)};
}

}  // namespace

void head_norm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const ConstTensor& x,
                       const ConstTensor& w, double eps, double unit) {
  const char* op = "head_norm_forward";
  TRIREME_CHECK(x.rank() == 3 && x.size(1) > 0, op, ": x is ", x.shape(), ", expected (T, H, D)");
  const DType dtype = x.dtype();
  check_strided(op, "x", x, dtype, x.shape());
  check_strided(op, "y", y, dtype, x.shape());
  check_operand(op, "w", w, dtype, {x.size(2)});
  check_operand(op, "rstd", rstd, sum_dtype(dtype), {x.size(0), x.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::HeadNormForward<T> args{.y = rows_of<T>(y),
                                       .x = rows_of<T>(x),
                                       .rstd = rstd.as<F>(),
                                       .w = w.as<T>(),
                                       .rows = x.size(0),
                                       .heads = x.size(1),
                                       .width = x.size(2),
                                       .eps = static_cast<F>(eps),
                                       .unit = static_cast<F>(unit)};
    if (ctx.gpu != nullptr) return cuda::head_norm_forward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(head_norm_forward<T>)(args, ctx.threads);
  });
}

void head_norm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const ConstTensor& dy,
                        const ConstTensor& x, const ConstTensor& w, const ConstTensor& rstd,
                        bool accumulate, double unit) {
  const char* op = "head_norm_backward";
  TRIREME_CHECK(x.rank() == 3 && x.size(1) > 0, op, ": x is ", x.shape(), ", expected (T, H, D)");
  const DType dtype = x.dtype(), sums = sum_dtype(dtype);
  check_strided(op, "x", x, dtype, x.shape());
  check_strided(op, "dx", dx, dtype, x.shape());
  check_strided(op, "dy", dy, dtype, x.shape());
  check_operand(op, "w", w, dtype, {x.size(2)});
  check_operand(op, "rstd", rstd, sums, {x.size(0), x.size(1)});
  check_operand(op, "dw", dw, sums, {x.size(2)});
  const int64_t blocks = row_blocks(ctx, x.size(0));
  const Activation partial = ctx.allocate("head_norm.partial_sums", sums, Shape{blocks, x.size(2)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::HeadNormBackward<T> args{.dx = rows_of<T>(dx),
                                        .dy = rows_of<T>(dy),
                                        .x = rows_of<T>(x),
                                        .rstd = rstd.as<F>(),
                                        .w = w.as<T>(),
                                        .dw = dw.as<F>(),
                                        .partial = partial->as<F>(),
                                        .rows = x.size(0),
                                        .heads = x.size(1),
                                        .width = x.size(2),
                                        .blocks = blocks,
                                        .accumulate = accumulate,
                                        .unit = static_cast<F>(unit)};
    if (ctx.gpu != nullptr) return cuda::head_norm_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(head_norm_backward<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
