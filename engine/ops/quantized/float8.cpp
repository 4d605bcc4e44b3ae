#include "engine/ops/quantized/float8.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/quantized/float8.kernels.h"

namespace trireme {
namespace {

int64_t group_rows(Float8Scaling scaling) {
  switch (scaling) {
    case Float8Scaling::kTensor: return 0;
    case Float8Scaling::kRowGroup: return 1;
    case Float8Scaling::kBlock: return kFloat8Block;
  }
  TRIREME_UNREACHABLE("float8 scaling ", static_cast<int>(scaling));
}

// Newest first; the scale follows from the largest.
void update_on_cpu(const cpu::Float8Scales& a) {
  for (int64_t t = 0; t < a.tensors; ++t) {
    if (a.history != nullptr && !std::isfinite(a.amax[t])) continue;
    uint32_t largest = cpu::magnitude_bits(a.amax[t]);
    if (a.history != nullptr) {
      float* const row = a.history + t * a.length;
      std::copy_backward(row, row + a.length - 1, row + a.length);
      row[0] = a.amax[t];
      for (int64_t i = 1; i < a.length; ++i)
        largest = std::max(largest, cpu::magnitude_bits(row[i]));
    }
    a.scale[t] = cpu::float8_scale(a.largest, std::bit_cast<float>(largest), a.margin,
                                   a.history != nullptr ? a.scale[t] : 1.0f);
  }
}

void update_scales(Ctx& ctx, const char* op, const Tensor& scale, const Tensor& history,
                   const ConstTensor& amax, Float8Format format, int margin) {
  TRIREME_CHECK(amax.rank() == 1, op, ": amax is ", amax.shape(), ", expected (N)");
  check_operand(op, "amax", amax, DType::kF32, amax.shape());
  check_operand(op, "scale", scale, DType::kF32, amax.shape());
  TRIREME_CHECK(margin > -100 && margin < 100, op, ": margin is ", margin,
                ", expected more than -100 and less than 100");
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const cpu::Float8Scales args{.scale = scale.as<float>(),
                               .history = history.present() ? history.as<float>() : nullptr,
                               .amax = amax.as<float>(),
                               .tensors = amax.size(0),
                               .length = history.present() ? history.size(1) : 0,
                               .largest = float8_max(format),
                               .margin = std::ldexp(1.0f, -margin)};
  if (ctx.gpu != nullptr) return cuda::update_float8_scales(*ctx.gpu, args);
  update_on_cpu(args);
}

template <class T>
void run_quantize(Ctx& ctx, const cpu::QuantizeFloat8<T>& args) {
  if (ctx.gpu != nullptr) return cuda::quantize_float8<T>(*ctx.gpu, args);
  TRIREME_KERNEL(quantize_float8<T>)(args, ctx.threads);
}

}  // namespace

Shape float8_inverse_shape(Float8Scaling scaling, const Shape& codes) {
  if (scaling == Float8Scaling::kTensor) return {1};
  TRIREME_CHECK(codes.rank() == 2, "float8: codes in groups are ", codes, ", expected (R, C)");
  const int64_t across = ceil_div(codes[1], kFloat8Block);
  if (scaling == Float8Scaling::kRowGroup) return {across, codes[0]};
  return {ceil_div(codes[0], kFloat8Block), cpu::float8_blocks_in_row(codes[1])};
}

void amax(Ctx& ctx, const Tensor& out, const ConstTensor& x, bool accumulate) {
  check_operand("amax", "out", out, DType::kF32, {1});
  check_contiguous("amax", "x", x);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("amax", x.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::amax<T>(*ctx.gpu, out.as<float>(), x.as<T>(), x.numel(), accumulate);
    TRIREME_KERNEL(amax<T>)(out.as<float>(), x.as<T>(), x.numel(), accumulate, ctx.threads);
  });
}

void scale_from_amax(Ctx& ctx, const Tensor& scale, const ConstTensor& amax, Float8Format format,
                     int margin) {
  update_scales(ctx, "scale_from_amax", scale, {}, amax, format, margin);
}

void update_delayed_scale(Ctx& ctx, const Tensor& scale, const Tensor& history,
                          const ConstTensor& amax, Float8Format format, int margin) {
  constexpr const char* kOp = "update_delayed_scale";
  TRIREME_CHECK(history.rank() == 2 && history.size(1) > 0, kOp, ": history is ", history.shape(),
                ", expected (N, H) with H > 0");
  check_operand(kOp, "history", history, DType::kF32, {amax.numel(), history.size(1)});
  update_scales(ctx, kOp, scale, history, amax, format, margin);
}

void quantize_float8(Ctx& ctx, const Tensor& codes, const Tensor& inverse, const ConstTensor& x,
                     const ConstTensor& scale, Float8Format format) {
  constexpr const char* kOp = "quantize_float8";
  check_contiguous(kOp, "x", x);
  check_operand(kOp, "codes", codes, DType::kU8, x.shape());
  check_operand(kOp, "inverse", inverse, DType::kF32, {1});
  check_operand(kOp, "scale", scale, DType::kF32, {1});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, x.dtype(), [&]<class T>() {
    run_quantize<T>(ctx, {.codes = codes.as<uint8_t>(),
                          .inverse = inverse.as<float>(),
                          .x = x.as<T>(),
                          .scale = scale.as<float>(),
                          .rows = 1,
                          .columns = x.numel(),
                          .group_rows = 0,
                          .format = format});
  });
}

void quantize_float8_groups(Ctx& ctx, const Tensor& codes, const Tensor& inverse,
                            const ConstTensor& x, Float8Format format, Float8Scaling scaling) {
  constexpr const char* kOp = "quantize_float8_groups";
  TRIREME_CHECK(scaling != Float8Scaling::kTensor, kOp,
                ": one scale for all elements is supported by quantize_float8() only");
  TRIREME_CHECK(x.rank() == 2, kOp, ": x is ", x.shape(), ", expected (R, C)");
  check_contiguous(kOp, "x", x);
  check_operand(kOp, "codes", codes, DType::kU8, x.shape());
  check_operand(kOp, "inverse", inverse, DType::kF32, float8_inverse_shape(scaling, x.shape()));
  if (ctx.planning() || x.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, x.dtype(), [&]<class T>() {
    run_quantize<T>(ctx, {.codes = codes.as<uint8_t>(),
                          .inverse = inverse.as<float>(),
                          .x = x.as<T>(),
                          .scale = nullptr,
                          .rows = x.size(0),
                          .columns = x.size(1),
                          .group_rows = group_rows(scaling),
                          .format = format});
  });
}

void quantize_float8_transposed(Ctx& ctx, const Tensor& codes, const Tensor& inverse,
                                const ConstTensor& x, const ConstTensor& scale, Float8Format format,
                                Float8Scaling scaling) {
  constexpr const char* kOp = "quantize_float8_transposed";
  TRIREME_CHECK(x.rank() == 2, kOp, ": x is ", x.shape(), ", expected (R, C)");
  const Shape turned{x.size(1), x.size(0)};
  check_contiguous(kOp, "x", x);
  check_operand(kOp, "codes", codes, DType::kU8, turned);
  check_operand(kOp, "inverse", inverse, DType::kF32, float8_inverse_shape(scaling, turned));
  const bool whole = scaling == Float8Scaling::kTensor;
  TRIREME_CHECK(scale.present() == whole, kOp,
                ": expected `scale` with Float8Scaling::kTensor only");
  if (whole) check_operand(kOp, "scale", scale, DType::kF32, {1});
  if (ctx.planning() || (x.numel() == 0 && !whole)) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, x.dtype(), [&]<class T>() {
    const cpu::QuantizeFloat8<T> args{.codes = codes.as<uint8_t>(),
                                      .inverse = inverse.as<float>(),
                                      .x = x.as<T>(),
                                      .scale = whole ? scale.as<float>() : nullptr,
                                      .rows = x.size(0),
                                      .columns = x.size(1),
                                      .group_rows = group_rows(scaling),
                                      .format = format};
    if (ctx.gpu != nullptr) return cuda::quantize_float8_transposed<T>(*ctx.gpu, args);
    TRIREME_KERNEL(quantize_float8_transposed<T>)(args, ctx.threads);
  });
}

void dequantize_float8(Ctx& ctx, const Tensor& y, const ConstTensor& codes,
                       const ConstTensor& inverse, Float8Format format, Float8Scaling scaling) {
  constexpr const char* kOp = "dequantize_float8";
  check_contiguous(kOp, "y", y);
  check_operand(kOp, "codes", codes, DType::kU8, y.shape());
  check_operand(kOp, "inverse", inverse, DType::kF32, float8_inverse_shape(scaling, y.shape()));
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const bool whole = scaling == Float8Scaling::kTensor;
  dispatch_float(kOp, y.dtype(), [&]<class T>() {
    const cpu::DequantizeFloat8<T> args{.y = y.as<T>(),
                                        .codes = codes.as<uint8_t>(),
                                        .inverse = inverse.as<float>(),
                                        .rows = whole ? 1 : y.size(0),
                                        .columns = whole ? y.numel() : y.size(1),
                                        .group_rows = group_rows(scaling),
                                        .format = format};
    if (ctx.gpu != nullptr) return cuda::dequantize_float8<T>(*ctx.gpu, args);
    TRIREME_KERNEL(dequantize_float8<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
