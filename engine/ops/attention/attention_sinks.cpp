#include "engine/ops/attention/attention_sinks.h"

#include "engine/ops/attention/attention_sinks.kernels.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
namespace {

void check_rows(const char* op, const char* operand, const ConstTensor& t, const ConstTensor& out) {
  TRIREME_CHECK(out.rank() == 3, op, ": out is ", out.shape(), ", expected (T, H, D)");
  check_strided(op, operand, t, out.dtype(), out.shape());
}

void check_sinks(const char* op, const ConstTensor& out, const ConstTensor& lse,
                 const ConstTensor& sinks) {
  check_rows(op, "out", out, out);
  check_operand(op, "lse", lse, sum_dtype(out.dtype()), {out.size(1), out.size(0)});
  check_operand(op, "sinks", sinks, out.dtype(), {out.size(1)});
}

}  // namespace

void attention_sinks_forward(Ctx& ctx, const Tensor& out, const Tensor& lse,
                             const ConstTensor& sinks) {
  const char* op = "attention_sinks_forward";
  check_sinks(op, out, lse, sinks);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  dispatch_float(op, out.dtype(), [&]<class T>() {
    const cpu::SinksForward<T> args{.out = {out.as<T>(), out.stride(0), out.stride(1)},
                                    .lse = lse.as<compute_t<T>>(),
                                    .sinks = sinks.as<T>(),
                                    .tokens = out.size(0),
                                    .heads = out.size(1),
                                    .width = out.size(2)};
    if (ctx.gpu != nullptr) return cuda::attention_sinks_forward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(attention_sinks_forward<T>)(args, ctx.threads);
  });
}

void attention_sinks_backward(Ctx& ctx, const Tensor& d_sinks, const ConstTensor& dout,
                              const ConstTensor& out, const ConstTensor& lse,
                              const ConstTensor& sinks, bool accumulate) {
  const char* op = "attention_sinks_backward";
  check_sinks(op, out, lse, sinks);
  check_rows(op, "dout", dout, out);
  const DType sums = sum_dtype(out.dtype());
  check_operand(op, "d_sinks", d_sinks, sums, {out.size(1)});
  const int64_t blocks = row_blocks(ctx, out.size(0));
  const Activation partial =
      ctx.allocate("attention_sinks.partial_sums", sums, Shape{blocks, out.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  dispatch_float(op, out.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::SinksBackward<T> args{.d_sinks = d_sinks.as<F>(),
                                     .partial = partial->as<F>(),
                                     .dout = {dout.as<T>(), dout.stride(0), dout.stride(1)},
                                     .out = {out.as<T>(), out.stride(0), out.stride(1)},
                                     .lse = lse.as<F>(),
                                     .sinks = sinks.as<T>(),
                                     .tokens = out.size(0),
                                     .heads = out.size(1),
                                     .width = out.size(2),
                                     .blocks = blocks,
                                     .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::attention_sinks_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(attention_sinks_backward<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
