#include "engine/ops/norm/divided_norm.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/norm/divided_norm.kernels.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
namespace {

void check_matrix(const char* op, const char* operand, const ConstTensor& t, const ConstTensor& x) {
  TRIREME_CHECK(x.rank() == 2, op, ": x is ", x.shape(), ", expected (T, C)");
  check_strided(op, operand, t, x.dtype(), x.shape());
}

void check_vectors(const char* op, const ConstTensor& x, const ConstTensor& w,
                   const ConstTensor& rstd) {
  check_operand(op, "w", w, x.dtype(), {x.size(1)});
  check_operand(op, "rstd", rstd, sum_dtype(x.dtype()), {x.size(0)});
}

template <class T>
cpu::StridedRows<const T> strided_rows(const ConstTensor& t) {
  return {t.as<T>(), t.stride(0)};
}
template <class T>
cpu::StridedRows<T> strided_rows(const Tensor& t) {
  return {t.as<T>(), t.stride(0)};
}

}  // namespace

void square_sums(Ctx& ctx, const Tensor& sums, const ConstTensor& x) {
  const char* op = "square_sums";
  check_matrix(op, "x", x, x);
  check_operand(op, "sums", sums, sum_dtype(x.dtype()), {x.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    const cpu::SquareSums<T> args{.sums = sums.as<compute_t<T>>(),
                                  .x = strided_rows<T>(x),
                                  .rows = x.size(0),
                                  .columns = x.size(1)};
    if (ctx.gpu != nullptr) return cuda::square_sums<T>(*ctx.gpu, args);
    TRIREME_KERNEL(square_sums<T>)(args, ctx.threads);
  });
}

void divided_norm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const ConstTensor& x,
                          const ConstTensor& w, const ConstTensor& sums, int64_t width,
                          double eps) {
  const char* op = "divided_norm_forward";
  check_matrix(op, "x", x, x);
  check_matrix(op, "y", y, x);
  check_vectors(op, x, w, rstd);
  check_operand(op, "sums", sums, sum_dtype(x.dtype()), {x.size(0)});
  TRIREME_CHECK(width >= x.size(1), op, ": x has ", x.size(1), " columns, more than the width, ",
                width);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::DividedNormForward<T> args{.y = strided_rows<T>(y),
                                          .x = strided_rows<T>(x),
                                          .rstd = rstd.as<F>(),
                                          .sums = sums.as<F>(),
                                          .w = w.as<T>(),
                                          .rows = x.size(0),
                                          .columns = x.size(1),
                                          .width = static_cast<F>(width),
                                          .eps = static_cast<F>(eps)};
    if (ctx.gpu != nullptr) return cuda::divided_norm_forward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(divided_norm_forward<T>)(args, ctx.threads);
  });
}

void divided_norm_backward_weight(Ctx& ctx, const Tensor& dots, const Tensor& dw,
                                  const ConstTensor& dy, const ConstTensor& x, const ConstTensor& w,
                                  const ConstTensor& rstd, bool accumulate) {
  const char* op = "divided_norm_backward_weight";
  check_matrix(op, "x", x, x);
  check_matrix(op, "dy", dy, x);
  check_vectors(op, x, w, rstd);
  const DType sums = sum_dtype(x.dtype());
  check_operand(op, "dots", dots, sums, {x.size(0)});
  check_operand(op, "dw", dw, sums, {x.size(1)});
  const int64_t blocks = row_blocks(ctx, x.size(0));
  const Activation partial =
      ctx.allocate("divided_norm.partial_sums", sums, Shape{blocks, x.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::DividedNormBackwardWeight<T> args{.dots = dots.as<F>(),
                                                 .dw = dw.as<F>(),
                                                 .partial = partial->as<F>(),
                                                 .dy = strided_rows<T>(dy),
                                                 .x = strided_rows<T>(x),
                                                 .rstd = rstd.as<F>(),
                                                 .w = w.as<T>(),
                                                 .rows = x.size(0),
                                                 .columns = x.size(1),
                                                 .blocks = blocks,
                                                 .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::divided_norm_backward_weight<T>(*ctx.gpu, args);
    TRIREME_KERNEL(divided_norm_backward_weight<T>)(args, ctx.threads);
  });
}

void divided_norm_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy,
                                 const ConstTensor& x, const ConstTensor& w,
                                 const ConstTensor& rstd, const ConstTensor& dots, int64_t width) {
  const char* op = "divided_norm_backward_input";
  check_matrix(op, "x", x, x);
  check_matrix(op, "dx", dx, x);
  check_matrix(op, "dy", dy, x);
  check_vectors(op, x, w, rstd);
  check_operand(op, "dots", dots, sum_dtype(x.dtype()), {x.size(0)});
  TRIREME_CHECK(width >= x.size(1), op, ": x has ", x.size(1), " columns, more than the width, ",
                width);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::DividedNormBackwardInput<T> args{.dx = strided_rows<T>(dx),
                                                .dy = strided_rows<T>(dy),
                                                .x = strided_rows<T>(x),
                                                .rstd = rstd.as<F>(),
                                                .dots = dots.as<F>(),
                                                .w = w.as<T>(),
                                                .rows = x.size(0),
                                                .columns = x.size(1),
                                                .width = static_cast<F>(width)};
    if (ctx.gpu != nullptr) return cuda::divided_norm_backward_input<T>(*ctx.gpu, args);
    TRIREME_KERNEL(divided_norm_backward_input<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
