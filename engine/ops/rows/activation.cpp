#include "engine/ops/rows/activation.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/activation.kernels.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {

void activation_forward(Ctx& ctx, ActivationFunction f, const Tensor& y, const ConstTensor& x) {
  const char* op = op_names(f).forward;
  check_contiguous(op, "x", x);
  check_operand(op, "y", y, x.dtype(), x.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::activation_forward<T>(*ctx.gpu, f, y.as<T>(), x.as<T>(), x.numel());
    TRIREME_KERNEL(activation_forward<T>)(f, y.as<T>(), x.as<T>(), x.numel(), ctx.threads);
  });
}

void activation_backward(Ctx& ctx, ActivationFunction f, const Tensor& dx, const ConstTensor& dy,
                         const ConstTensor& x) {
  const char* op = op_names(f).backward;
  check_contiguous(op, "x", x);
  check_operand(op, "dx", dx, x.dtype(), x.shape());
  check_operand(op, "dy", dy, x.dtype(), x.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::activation_backward<T>(*ctx.gpu, f, dx.as<T>(), dy.as<T>(), x.as<T>(),
                                          x.numel());
    TRIREME_KERNEL(activation_backward<T>)
    (f, dx.as<T>(), dy.as<T>(), x.as<T>(), x.numel(), ctx.threads);
  });
}

namespace {

// gate_up of y (T, F), or of its gradient.
void check_gated(const char* op, const char* name, const ConstTensor& y,
                 const ConstTensor& gate_up) {
  TRIREME_CHECK(y.rank() == 2, op, ": ", name, " is ", y.shape(), ", expected (T, F)");
  check_contiguous(op, name, y);
  check_operand(op, "gate_up", gate_up, y.dtype(), {y.size(0), 2 * y.size(1)});
}

}  // namespace

void gated_forward(Ctx& ctx, ActivationFunction f, const Tensor& y, const ConstTensor& gate_up) {
  const char* op = op_names(f).gated_forward;
  check_gated(op, "y", y, gate_up);
  const int64_t rows = y.size(0), columns = y.size(1);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, y.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::gated_forward<T>(*ctx.gpu, f, y.as<T>(), gate_up.as<T>(), rows, columns);
    TRIREME_KERNEL(gated_forward<T>)
    (f, y.as<T>(), gate_up.as<T>(), rows, columns, ctx.threads);
  });
}

void gated_backward(Ctx& ctx, ActivationFunction f, const Tensor& d_gate_up, const ConstTensor& dy,
                    const ConstTensor& gate_up) {
  const char* op = op_names(f).gated_backward;
  check_gated(op, "dy", dy, gate_up);
  check_operand(op, "d_gate_up", d_gate_up, dy.dtype(), gate_up.shape());
  const int64_t rows = dy.size(0), columns = dy.size(1);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dy.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::gated_backward<T>(*ctx.gpu, f, d_gate_up.as<T>(), dy.as<T>(), gate_up.as<T>(),
                                     rows, columns);
    TRIREME_KERNEL(gated_backward<T>)
    (f, d_gate_up.as<T>(), dy.as<T>(), gate_up.as<T>(), rows, columns, ctx.threads);
  });
}

void add_bias(Ctx& ctx, const Tensor& y, const ConstTensor& bias) {
  TRIREME_CHECK(y.rank() == 2, "add_bias: y is ", y.shape(), ", expected (T, N)");
  check_contiguous("add_bias", "y", y);
  check_operand("add_bias", "bias", bias, y.dtype(), {y.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("add_bias", y.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::add_bias<T>(*ctx.gpu, y.as<T>(), bias.as<T>(), y.size(0), y.size(1));
    TRIREME_KERNEL(add_bias<T>)(y.as<T>(), bias.as<T>(), y.size(0), y.size(1), ctx.threads);
  });
}

void bias_backward(Ctx& ctx, const Tensor& db, const ConstTensor& dy, bool accumulate) {
  TRIREME_CHECK(dy.rank() == 2, "bias_backward: dy is ", dy.shape(), ", expected (T, N)");
  const int64_t rows = dy.size(0), columns = dy.size(1), blocks = row_blocks(ctx, rows);
  const DType sums = sum_dtype(dy.dtype());
  check_contiguous("bias_backward", "dy", dy);
  check_operand("bias_backward", "db", db, sums, {columns});
  const Activation partial = ctx.allocate("bias.partial_sums", sums, Shape{blocks, columns});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("bias_backward", dy.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::BiasBackward<T> args{.db = db.as<F>(),
                                    .dy = dy.as<T>(),
                                    .partial = partial->as<F>(),
                                    .rows = rows,
                                    .columns = columns,
                                    .blocks = blocks,
                                    .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::bias_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(bias_backward<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
