#include "engine/ops/quantized/quantize.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/quantized/quantize.kernels.h"

namespace trireme {
namespace {

void check_int8(const char* op, const ConstTensor& w, const ConstTensor& codes,
                const ConstTensor& scale) {
  TRIREME_CHECK(w.rank() == 2, op, ": w is ", w.shape(), ", expected (N, K)");
  check_contiguous(op, "w", w);
  check_operand(op, "codes", codes, DType::kU8, w.shape());
  check_operand(op, "scale", scale, DType::kF32, {w.size(0)});
}

void check_int4(const char* op, const ConstTensor& w, const ConstTensor& codes,
                const ConstTensor& scale, const ConstTensor& minimum) {
  TRIREME_CHECK(w.rank() == 2 && w.size(1) % 2 == 0, op, ": w is ", w.shape(),
                ", expected (N, K) with an even K");
  check_contiguous(op, "w", w);
  check_operand(op, "codes", codes, DType::kU8, {w.size(0), w.size(1) / 2});
  const Shape groups{w.size(0), ceil_div(w.size(1), kInt4Group)};
  check_operand(op, "scale", scale, DType::kF32, groups);
  if (minimum.present()) check_operand(op, "minimum", minimum, DType::kF32, groups);
}

// Operands that one direction only reads: the structure shared by both has no const.
template <class P>
P* writable(const ConstTensor& t) {
  return t.present() ? const_cast<P*>(t.as<P>()) : nullptr;
}

}  // namespace

void quantize_int8(Ctx& ctx, const Tensor& codes, const Tensor& scale, const ConstTensor& w) {
  check_int8("quantize_int8", w, codes, scale);
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("quantize_int8", w.dtype(), [&]<class T>() {
    const cpu::Int8Weight<const T> args{w.as<T>(), codes.as<uint8_t>(), scale.as<float>(),
                                        w.size(0), w.size(1)};
    if (ctx.gpu != nullptr) return cuda::quantize_int8<T>(*ctx.gpu, args);
    TRIREME_KERNEL(quantize_int8<T>)(args, ctx.threads);
  });
}

void dequantize_int8(Ctx& ctx, const Tensor& w, const ConstTensor& codes,
                     const ConstTensor& scale) {
  check_int8("dequantize_int8", w, codes, scale);
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("dequantize_int8", w.dtype(), [&]<class T>() {
    const cpu::Int8Weight<T> args{w.as<T>(), writable<uint8_t>(codes), writable<float>(scale),
                                  w.size(0), w.size(1)};
    if (ctx.gpu != nullptr) return cuda::dequantize_int8<T>(*ctx.gpu, args);
    TRIREME_KERNEL(dequantize_int8<T>)(args, ctx.threads);
  });
}

void quantize_int4(Ctx& ctx, const Tensor& codes, const Tensor& scale, const Tensor& minimum,
                   const ConstTensor& w) {
  check_int4("quantize_int4", w, codes, scale, minimum);
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("quantize_int4", w.dtype(), [&]<class T>() {
    const cpu::Int4Weight<const T> args{w.as<T>(),         codes.as<uint8_t>(),
                                        scale.as<float>(), writable<float>(minimum),
                                        w.size(0),         w.size(1)};
    if (ctx.gpu != nullptr) return cuda::quantize_int4<T>(*ctx.gpu, args);
    TRIREME_KERNEL(quantize_int4<T>)(args, ctx.threads);
  });
}

void dequantize_int4(Ctx& ctx, const Tensor& w, const ConstTensor& codes, const ConstTensor& scale,
                     const ConstTensor& minimum) {
  check_int4("dequantize_int4", w, codes, scale, minimum);
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("dequantize_int4", w.dtype(), [&]<class T>() {
    const cpu::Int4Weight<T> args{w.as<T>(),
                                  writable<uint8_t>(codes),
                                  writable<float>(scale),
                                  writable<float>(minimum),
                                  w.size(0),
                                  w.size(1)};
    if (ctx.gpu != nullptr) return cuda::dequantize_int4<T>(*ctx.gpu, args);
    TRIREME_KERNEL(dequantize_int4<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
