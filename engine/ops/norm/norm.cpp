#include "engine/ops/norm/norm.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/norm/norm.kernels.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
namespace {

// `mean` and `b` are null for RMSNorm.
void forward(Ctx& ctx, const char* op, const Tensor& y, const Tensor* mean, const Tensor& rstd,
             const Tensor& h, const ConstTensor& x, const ConstTensor& residual,
             const ConstTensor& w, const ConstTensor* b, double eps, double unit) {
  TRIREME_CHECK(x.rank() == 2, op, ": x is ", x.shape(), ", expected (T, C)");
  TRIREME_CHECK(unit == 0 || unit == 1, op, ": unit is ", unit, ", expected 0 or 1");
  TRIREME_CHECK(h.present() == residual.present(), op,
                ": h is written exactly when there is a residual");
  const DType dtype = x.dtype(), sums = sum_dtype(dtype);
  const Shape rows{x.size(0)}, columns{x.size(1)};
  check_contiguous(op, "x", x);
  check_operand(op, "y", y, dtype, x.shape());
  check_operand(op, "w", w, dtype, columns);
  check_operand(op, "rstd", rstd, sums, rows);
  if (mean != nullptr) check_operand(op, "mean", *mean, sums, rows);
  if (b != nullptr) check_operand(op, "b", *b, dtype, columns);
  if (h.present()) {
    check_operand(op, "h", h, dtype, x.shape());
    check_operand(op, "residual", residual, dtype, x.shape());
  }
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::NormForward<T> args{
        .y = y.as<T>(),
        .h = h.present() ? h.as<T>() : nullptr,
        .mean = mean != nullptr ? mean->as<F>() : nullptr,
        .rstd = rstd.as<F>(),
        .x = x.as<T>(),
        .residual = residual.present() ? residual.as<T>() : nullptr,
        .w = w.as<T>(),
        .b = b != nullptr ? b->as<T>() : nullptr,
        .rows = x.size(0),
        .columns = x.size(1),
        .eps = static_cast<F>(eps),
        .unit = static_cast<F>(unit),
    };
    if (ctx.gpu != nullptr) return cuda::norm_forward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(norm_forward<T>)(args, ctx.threads);
  });
}

// `db` and `mean` are null for RMSNorm.
void backward(Ctx& ctx, const char* op, const Tensor& dx, const Tensor& dw, const Tensor* db,
              const ConstTensor& dy, const ConstTensor& dh_in, const ConstTensor& h,
              const ConstTensor& w, const ConstTensor* mean, const ConstTensor& rstd,
              bool accumulate, double unit) {
  TRIREME_CHECK(h.rank() == 2, op, ": h is ", h.shape(), ", expected (T, C)");
  TRIREME_CHECK(unit == 0 || unit == 1, op, ": unit is ", unit, ", expected 0 or 1");
  const DType dtype = h.dtype(), sums = sum_dtype(dtype);
  const Shape rows{h.size(0)}, columns{h.size(1)};
  check_contiguous(op, "h", h);
  check_operand(op, "dx", dx, dtype, h.shape());
  check_operand(op, "dy", dy, dtype, h.shape());
  check_operand(op, "w", w, dtype, columns);
  check_operand(op, "rstd", rstd, sums, rows);
  check_operand(op, "dw", dw, sums, columns);
  if (mean != nullptr) check_operand(op, "mean", *mean, sums, rows);
  if (db != nullptr) check_operand(op, "db", *db, sums, columns);
  if (dh_in.present()) check_operand(op, "dh_in", dh_in, dtype, h.shape());
  const int64_t blocks = row_blocks(ctx, h.size(0), kRowsInFlight);
  const Activation partial = ctx.allocate(
      "norm.partial_sums", sums, Shape{db != nullptr ? int64_t{2} : int64_t{1}, blocks, h.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::NormBackward<T> args{
        .dx = dx.as<T>(),
        .dw = dw.as<F>(),
        .db = db != nullptr ? db->as<F>() : nullptr,
        .dy = dy.as<T>(),
        .dh_in = dh_in.present() ? dh_in.as<T>() : nullptr,
        .h = h.as<T>(),
        .w = w.as<T>(),
        .mean = mean != nullptr ? mean->as<F>() : nullptr,
        .rstd = rstd.as<F>(),
        .partial = partial->as<F>(),
        .rows = h.size(0),
        .columns = h.size(1),
        .blocks = blocks,
        .accumulate = accumulate,
        .unit = static_cast<F>(unit),
    };
    if (ctx.gpu != nullptr) return cuda::norm_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(norm_backward<T>)(args, ctx.threads);
  });
}

}  // namespace

void rmsnorm_forward(Ctx& ctx, const Tensor& y, const Tensor& rstd, const Tensor& h,
                     const ConstTensor& x, const ConstTensor& residual, const ConstTensor& w,
                     double eps, double unit) {
  forward(ctx, "rmsnorm_forward", y, nullptr, rstd, h, x, residual, w, nullptr, eps, unit);
}

void rmsnorm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const ConstTensor& dy,
                      const ConstTensor& dh_in, const ConstTensor& h, const ConstTensor& w,
                      const ConstTensor& rstd, bool accumulate, double unit) {
  backward(ctx, "rmsnorm_backward", dx, dw, nullptr, dy, dh_in, h, w, nullptr, rstd, accumulate,
           unit);
}

void layernorm_forward(Ctx& ctx, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                       const Tensor& h, const ConstTensor& x, const ConstTensor& residual,
                       const ConstTensor& w, const ConstTensor& b, double eps) {
  forward(ctx, "layernorm_forward", y, &mean, rstd, h, x, residual, w, &b, eps, 0);
}

void layernorm_backward(Ctx& ctx, const Tensor& dx, const Tensor& dw, const Tensor& db,
                        const ConstTensor& dy, const ConstTensor& dh_in, const ConstTensor& h,
                        const ConstTensor& w, const ConstTensor& mean, const ConstTensor& rstd,
                        bool accumulate) {
  backward(ctx, "layernorm_backward", dx, dw, &db, dy, dh_in, h, w, &mean, rstd, accumulate, 0);
}

}  // namespace trireme
