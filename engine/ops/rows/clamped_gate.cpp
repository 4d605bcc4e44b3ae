#include "engine/ops/rows/clamped_gate.h"

#include <cmath>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/clamped_gate.kernels.h"

namespace trireme {
namespace {

// gate_up of y (T, F), or of its gradient.
void check_halves(const char* op, const ClampedGate& f, const char* name, const ConstTensor& y,
                  const ConstTensor& gate_up) {
  TRIREME_CHECK(f.limit > 0 && std::isfinite(f.slope) && std::isfinite(f.up_offset), op, ": limit ",
                f.limit, ", slope ", f.slope, ", offset ", f.up_offset,
                ", expected finite numbers and limit > 0");
  TRIREME_CHECK(y.rank() == 2, op, ": ", name, " is ", y.shape(), ", expected (T, F)");
  check_contiguous(op, name, y);
  check_operand(op, "gate_up", gate_up, y.dtype(), {y.size(0), 2 * y.size(1)});
}

template <class T>
cpu::ClampedGateRows<T> rows_of(const ClampedGate& f, const ConstTensor& y) {
  using F = compute_t<T>;
  return {.limit = static_cast<F>(f.limit),
          .slope = static_cast<F>(f.slope),
          .up_offset = static_cast<F>(f.up_offset),
          .rows = y.size(0),
          .columns = y.size(1)};
}

}  // namespace

void clamped_gate_forward(Ctx& ctx, const ClampedGate& f, const Tensor& y,
                          const ConstTensor& gate_up) {
  const char* op = "clamped_gate_forward";
  check_halves(op, f, "y", y, gate_up);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, y.dtype(), [&]<class T>() {
    const cpu::ClampedGateRows<T> args = rows_of<T>(f, y);
    if (ctx.gpu != nullptr)
      return cuda::clamped_gate_forward<T>(*ctx.gpu, args, y.as<T>(), gate_up.as<T>());
    TRIREME_KERNEL(clamped_gate_forward<T>)(args, y.as<T>(), gate_up.as<T>(), ctx.threads);
  });
}

void clamped_gate_backward(Ctx& ctx, const ClampedGate& f, const Tensor& d_gate_up,
                           const ConstTensor& dy, const ConstTensor& gate_up) {
  const char* op = "clamped_gate_backward";
  check_halves(op, f, "dy", dy, gate_up);
  check_operand(op, "d_gate_up", d_gate_up, dy.dtype(), gate_up.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dy.dtype(), [&]<class T>() {
    const cpu::ClampedGateRows<T> args = rows_of<T>(f, dy);
    if (ctx.gpu != nullptr)
      return cuda::clamped_gate_backward<T>(*ctx.gpu, args, d_gate_up.as<T>(), dy.as<T>(),
                                            gate_up.as<T>());
    TRIREME_KERNEL(clamped_gate_backward<T>)
    (args, d_gate_up.as<T>(), dy.as<T>(), gate_up.as<T>(), ctx.threads);
  });
}

}  // namespace trireme
