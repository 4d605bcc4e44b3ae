#include "engine/ops/rows/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/convert_float.h"
#include "engine/core/parallel_for.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/elementwise.kernels.h"

namespace trireme {

void add(Ctx& ctx, const Tensor& y, const ConstTensor& a, const ConstTensor& b) {
  check_contiguous("add", "y", y);
  check_operand("add", "a", a, y.dtype(), y.shape());
  check_operand("add", "b", b, y.dtype(), y.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("add", y.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::add<T>(*ctx.gpu, y.as<T>(), a.as<T>(), b.as<T>(), y.numel());
    TRIREME_KERNEL(add<T>)(y.as<T>(), a.as<T>(), b.as<T>(), y.numel(), ctx.threads);
  });
}

void scale(Ctx& ctx, const Tensor& y, const ConstTensor& x, double factor,
           FactorRounding rounding) {
  check_contiguous("scale", "y", y);
  check_operand("scale", "x", x, y.dtype(), y.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("scale", y.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const F rounded = rounding == FactorRounding::kTensor ? static_cast<F>(convert_float<T>(factor))
                                                          : static_cast<F>(factor);
    if (ctx.gpu != nullptr)
      return cuda::scale<T>(*ctx.gpu, y.as<T>(), x.as<T>(), rounded, y.numel());
    TRIREME_KERNEL(scale<T>)(y.as<T>(), x.as<T>(), rounded, y.numel(), ctx.threads);
  });
}

void cast(Ctx& ctx, const Tensor& y, const ConstTensor& x) {
  check_contiguous("cast", "y", y);
  check_contiguous("cast", "x", x);
  check_shape("cast", "x", x, y.shape());
  TRIREME_CHECK(is_float(y.dtype()), "cast: y is ", y.dtype(), ", expected a float type");
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("cast", x.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::cast<T>(*ctx.gpu, y.raw(), y.dtype(), x.as<T>(), x.numel());
    TRIREME_KERNEL(cast<T>)(y.raw(), y.dtype(), x.as<T>(), x.numel(), ctx.threads);
  });
}

void fill_zero(Ctx& ctx, const Tensor& y) {
  check_contiguous("fill_zero", "y", y);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  if (ctx.gpu != nullptr) return cuda::fill_bytes(*ctx.gpu, ctx.gpu->main, y.raw(), 0, y.bytes());
  constexpr int64_t kMinBytesPerThread = 1 << 16;
  auto* bytes = static_cast<std::byte*>(y.raw());
  parallel_for(ctx.threads, y.bytes(), kMinBytesPerThread, [=](int64_t begin, int64_t end) {
    std::memset(bytes + begin, 0, static_cast<size_t>(end - begin));
  });
}

void keep_columns(Ctx& ctx, const Tensor& y, const ConstTensor& ranges) {
  TRIREME_CHECK(y.rank() == 2, "keep_columns: y is ", y.shape(), ", expected (T, C)");
  check_contiguous("keep_columns", "y", y);
  check_operand("keep_columns", "ranges", ranges, DType::kI32, {y.size(0), 2});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const int64_t rows = y.size(0), columns = y.size(1);
  const auto* const kept = ranges.as<int32_t>();
  dispatch_float("keep_columns", y.dtype(), [&]<class T>() {
    T* const values = y.as<T>();
    if (ctx.gpu != nullptr) return cuda::keep_columns<T>(*ctx.gpu, values, kept, rows, columns);
    constexpr int64_t kRowsWorthAThread = 64;
    parallel_for(ctx.threads, rows, kRowsWorthAThread, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t first = std::clamp<int64_t>(kept[2 * t], 0, columns);
        const int64_t last = std::clamp<int64_t>(kept[2 * t + 1], first, columns);
        std::fill(values + t * columns, values + t * columns + first, T{});
        std::fill(values + t * columns + last, values + (t + 1) * columns, T{});
      }
    });
  });
}

namespace {

// y = x [+ residual].
void dropout_of_nothing(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                        const ConstTensor& residual) {
  if (residual.present()) return add(ctx, y, x, residual);
  if (y.raw() != x.raw()) cast(ctx, y, x);
}

}  // namespace

void dropout(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& residual,
             const ConstTensor& rows, double p, const RandomKey& key, const DropoutPart& part) {
  TRIREME_CHECK(x.rank() == 2, "dropout: x is ", x.shape(), ", expected (T, C)");
  TRIREME_CHECK(p >= 0.0 && p < 1.0, "dropout: p is ", p, ", expected 0 <= p < 1");
  check_operand("dropout", "y", y, x.dtype(), x.shape());
  check_contiguous("dropout", "x", x);
  if (residual.present()) check_operand("dropout", "residual", residual, x.dtype(), x.shape());
  if (p == 0.0) return dropout_of_nothing(ctx, y, x, residual);
  check_operand("dropout", "rows", rows, DType::kI64, {x.size(0)});
  const int64_t total = part.total > 0 ? part.total : x.size(1);
  TRIREME_CHECK(part.first >= 0 && part.first + x.size(1) <= total, "dropout: ", x.size(1),
                " columns from ", part.first, " on exceed the total, ", total);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("dropout", x.dtype(), [&]<class T>() {
    const cpu::DropoutArgs<T> args{
        .y = y.as<T>(),
        .x = x.as<T>(),
        .residual = residual.present() ? residual.as<T>() : nullptr,
        .rows = rows.as<int64_t>(),
        .num_rows = x.size(0),
        .columns = x.size(1),
        .first = part.first,
        .total = total,
        .threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24)),
        .scale = static_cast<compute_t<T>>(1.0 / (1.0 - p)),
        .key = key,
    };
    if (ctx.gpu != nullptr) return cuda::dropout<T>(*ctx.gpu, args);
    TRIREME_KERNEL(dropout<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
