#include "engine/ops/compression/orthonormal_rows.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/compression/orthonormal_rows.kernels.h"

namespace trireme {
namespace {

void check_rows(const char* op, const Tensor& y) {
  TRIREME_CHECK(y.rank() == 2, op, ": y is ", y.shape(), ", expected (R, N)");
  TRIREME_CHECK(y.dtype() == DType::kF32 || y.dtype() == DType::kF64, op, ": y is ", y.dtype(),
                ", expected float32 or float64");
  check_contiguous(op, "y", y);
}

// run.operator()<T>() with the type of y.
template <class Run>
void for_type(const Tensor& y, Run&& run) {
  if (y.dtype() == DType::kF64) return run.template operator()<double>();
  run.template operator()<float>();
}

}  // namespace

void orthonormal_rows(Ctx& ctx, const Tensor& y) {
  check_rows("orthonormal_rows", y);
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  for_type(y, [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::orthonormal_rows<T>(*ctx.gpu, y.as<T>(), y.size(0), y.size(1));
    TRIREME_KERNEL(orthonormal_rows<T>)(y.as<T>(), y.size(0), y.size(1));
  });
}

void copy_nonzero_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x) {
  check_rows("copy_nonzero_rows", y);
  check_operand("copy_nonzero_rows", "x", x, y.dtype(), y.shape());
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  for_type(y, [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::copy_nonzero_rows<T>(*ctx.gpu, y.as<T>(), x.as<T>(), y.size(0), y.size(1));
    TRIREME_KERNEL(copy_nonzero_rows<T>)(y.as<T>(), x.as<T>(), y.size(0), y.size(1));
  });
}

}  // namespace trireme
