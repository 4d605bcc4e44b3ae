#include "engine/ops/norm/dora_magnitude.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/norm/dora_magnitude.kernels.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
void adapted_row_squares(Ctx& ctx, const Tensor& squares, const ConstTensor& w,
                         const ConstTensor& a, const ConstTensor& b, double s) {
  const char* op = "adapted_row_squares";
  TRIREME_CHECK(w.rank() == 2 && a.rank() == 2, op, ": w is ", w.shape(), ", a ", a.shape(),
                ", expected (O, I) and (r, I)");
  const DType dtype = w.dtype();
  check_contiguous(op, "w", w);
  check_operand(op, "a", a, dtype, {a.size(0), w.size(1)});
  check_operand(op, "b", b, dtype, {w.size(0), a.size(0)});
  check_operand(op, "squares", squares, sum_dtype(dtype), {w.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::AdaptedRowSquares<T> args{.squares = squares.as<F>(),
                                         .w = w.as<T>(),
                                         .a = a.as<T>(),
                                         .b = b.as<T>(),
                                         .rows = w.size(0),
                                         .columns = w.size(1),
                                         .rank = a.size(0),
                                         .scale = static_cast<F>(s)};
    if (ctx.gpu != nullptr) return cuda::adapted_row_squares<T>(*ctx.gpu, args);
    TRIREME_KERNEL(adapted_row_squares<T>)(args, ctx.threads);
  });
}

void scale_outputs(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& m,
                   const ConstTensor& squares, double shift, bool accumulate) {
  const char* op = "scale_outputs";
  TRIREME_CHECK(x.rank() == 2, op, ": x is ", x.shape(), ", expected (T, O)");
  TRIREME_CHECK(m.present() == squares.present(), op, ": m and squares belong together");
  const DType dtype = x.dtype();
  check_strided(op, "x", x, dtype, x.shape());
  check_strided(op, "y", y, dtype, x.shape());
  if (m.present()) {
    check_operand(op, "m", m, dtype, {x.size(1)});
    check_operand(op, "squares", squares, sum_dtype(dtype), {x.size(1)});
  }
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::ScaleOutputs<T> args{.y = y.as<T>(),
                                    .x = x.as<T>(),
                                    .m = m.present() ? m.as<T>() : nullptr,
                                    .squares = m.present() ? squares.as<F>() : nullptr,
                                    .rows = x.size(0),
                                    .columns = x.size(1),
                                    .y_row = y.stride(0),
                                    .x_row = x.stride(0),
                                    .shift = static_cast<F>(shift),
                                    .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::scale_outputs<T>(*ctx.gpu, args);
    TRIREME_KERNEL(scale_outputs<T>)(args, ctx.threads);
  });
}

void magnitude_backward(Ctx& ctx, const Tensor& dm, const ConstTensor& dy, const ConstTensor& u,
                        const ConstTensor& squares, bool accumulate) {
  const char* op = "magnitude_backward";
  TRIREME_CHECK(dy.rank() == 2, op, ": dy is ", dy.shape(), ", expected (T, O)");
  const DType dtype = dy.dtype(), sums = sum_dtype(dtype);
  const int64_t rows = dy.size(0), columns = dy.size(1), blocks = row_blocks(ctx, rows);
  check_strided(op, "dy", dy, dtype, dy.shape());
  check_strided(op, "u", u, dtype, dy.shape());
  check_operand(op, "squares", squares, sums, {columns});
  check_operand(op, "dm", dm, sums, {columns});
  const Activation partial = ctx.allocate("magnitude.partial_sums", sums, Shape{blocks, columns});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dtype, [&]<class T>() {
    using F = compute_t<T>;
    const cpu::MagnitudeBackward<T> args{.dm = dm.as<F>(),
                                         .dy = dy.as<T>(),
                                         .u = u.as<T>(),
                                         .squares = squares.as<F>(),
                                         .partial = partial->as<F>(),
                                         .rows = rows,
                                         .columns = columns,
                                         .blocks = blocks,
                                         .dy_row = dy.stride(0),
                                         .u_row = u.stride(0),
                                         .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::magnitude_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(magnitude_backward<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
