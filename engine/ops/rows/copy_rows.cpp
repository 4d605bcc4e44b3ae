#include "engine/ops/rows/copy_rows.h"

#include <cstring>

#include "engine/core/parallel_for.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/copy_rows.kernels.h"

namespace trireme {
namespace {

constexpr int64_t kMinCopiedBytesPerThread = 1 << 16;

void check_rows(const char* op, const char* operand, const ConstTensor& t) {
  TRIREME_CHECK(t.rank() == 2 && (t.size(1) <= 1 || t.stride(1) == 1), op, ": ", operand,
                " of shape ", t.shape(), " must be (rows, columns) with adjacent columns");
}

const int32_t* check_list(const char* operand, const ConstTensor& list, int64_t n) {
  if (!list.present()) return nullptr;
  check_operand("copy_rows", operand, list, DType::kI32, {n});
  return list.as<int32_t>();
}

int64_t row_bytes(const ConstTensor& t) { return t.stride(0) * dtype_size(t.dtype()); }

}  // namespace

void copy_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& y_rows,
               const ConstTensor& x_rows) {
  const char* op = "copy_rows";
  check_rows(op, "y", y);
  check_rows(op, "x", x);
  check_dtype(op, "y", y, x.dtype());
  TRIREME_CHECK(y.size(1) == x.size(1), op, ": y ", y.shape(), " and x ", x.shape(),
                " differ in columns");
  const int64_t n = y_rows.present()   ? y_rows.numel()
                    : x_rows.present() ? x_rows.numel()
                                       : x.size(0);
  TRIREME_CHECK((y_rows.present() || n == y.size(0)) && (x_rows.present() || n == x.size(0)), op,
                ": expected ", n, " rows where no list selects them, y is ", y.shape(), ", x is ",
                x.shape());
  const int32_t* to = check_list("y_rows", y_rows, n);
  const int32_t* from = check_list("x_rows", x_rows, n);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const int64_t bytes = x.size(1) * dtype_size(x.dtype());
  const int64_t y_stride = row_bytes(y), x_stride = row_bytes(x);
  auto* target = static_cast<std::byte*>(y.raw());
  const auto* source = static_cast<const std::byte*>(x.raw());
  if (ctx.gpu != nullptr)
    return cuda::copy_rows(*ctx.gpu, {.y = target,
                                      .x = source,
                                      .y_rows = to,
                                      .x_rows = from,
                                      .rows = n,
                                      .bytes = bytes,
                                      .y_stride = y_stride,
                                      .x_stride = x_stride,
                                      .y_limit = y.size(0),
                                      .x_limit = x.size(0)});
  for (int64_t i = 0; i < n; ++i)
    TRIREME_CHECK((to == nullptr || (to[i] >= 0 && to[i] < y.size(0))) &&
                      (from == nullptr || (from[i] >= 0 && from[i] < x.size(0))),
                  op, ": entry ", i, " is not the index of a row");
  parallel_for(ctx.threads, n, kMinCopiedBytesPerThread / (bytes + 1) + 1,
               [=](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   std::memcpy(target + (to != nullptr ? to[i] : i) * y_stride,
                               source + (from != nullptr ? from[i] : i) * x_stride,
                               static_cast<size_t>(bytes));
               });
}

void round_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x) {
  check_rows("round_rows", "y", y);
  check_operand("round_rows", "x", x, sum_dtype(y.dtype()), y.shape());
  if (x.dtype() == y.dtype()) return copy_rows(ctx, y, x);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("round_rows", y.dtype(), [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      // The kernel is used in both directions and so takes its source as writable.
      auto* wide = const_cast<float*>(x.as<float>());
      const cpu::ConvertRows<T> args{y.size(0), y.size(1), y.as<T>(), y.stride(0), wide};
      if (ctx.gpu != nullptr) return cuda::narrow_rows<T>(*ctx.gpu, args);
      TRIREME_KERNEL(narrow_rows<T>)(args, ctx.threads);
    }
  });
}

ConstTensor heads_as_columns(const ConstTensor& t) {
  TRIREME_CHECK(t.rank() == 3 && (t.size(1) == 1 || t.stride(1) == t.size(2)) &&
                    (t.size(2) == 1 || t.stride(2) == 1),
                "heads of shape ", t.shape(), " are not contiguous");
  return {t.raw(), t.dtype(), Shape{t.size(0), t.size(1) * t.size(2)}, Shape{t.stride(0), 1},
          t.device()};
}

Tensor heads_as_columns(const Tensor& t) {
  const ConstTensor view = heads_as_columns(static_cast<const ConstTensor&>(t));
  return {t.raw(), t.dtype(), view.shape(), Shape{t.stride(0), 1}, t.device()};
}

}  // namespace trireme
