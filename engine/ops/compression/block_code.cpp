#include "engine/ops/compression/block_code.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/compression/block_code.kernels.h"

namespace trireme {
namespace {

cpu::BlockShape check_shape(const char* op, const BlockCode& code, const ConstTensor& x,
                            const ConstTensor& scale, const ConstTensor& codes) {
  TRIREME_CHECK(x.rank() == 2, op, ": x is ", x.shape(), ", expected (R, C)");
  check_contiguous(op, "x", x);
  const int64_t row_bytes = block_code_bytes(code, x.size(1));
  const int64_t blocks = ceil_div(x.size(1), code.block);
  check_operand(op, "scale", scale, DType::kF32, {x.size(0), blocks});
  check_operand(op, "codes", codes, DType::kU8, {x.size(0), row_bytes});
  return {x.size(0), x.size(1), code.block, blocks, row_bytes, code.bits};
}

}  // namespace

int64_t block_code_bytes(const BlockCode& code, int64_t columns) {
  TRIREME_CHECK(code.bits == 8 || code.bits == 4 || code.bits == 1, "block code of ", code.bits,
                " bits, expected 8, 4 or 1");
  TRIREME_CHECK(code.block > 0 && code.block <= kMaxQuantBlock && code.block % 8 == 0, "blocks of ",
                code.block, " columns, expected a multiple of 8, at most ", kMaxQuantBlock);
  return ceil_div(columns * code.bits, 8);
}

void encode_blocks(Ctx& ctx, const BlockCode& code, const Tensor& scale, const Tensor& codes,
                   const ConstTensor& x, const Tensor& residual) {
  const char* const op = "encode_blocks";
  const cpu::BlockShape shape = check_shape(op, code, x, scale, codes);
  if (residual.present()) check_operand(op, "residual", residual, sum_dtype(x.dtype()), x.shape());
  if (ctx.planning() || x.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    const cpu::BlockEncode<T> args{x.as<T>(),
                                   residual.present() ? residual.as<compute_t<T>>() : nullptr,
                                   scale.as<float>(), codes.as<uint8_t>(), shape};
    if (ctx.gpu != nullptr) return cuda::encode_blocks<T>(*ctx.gpu, args);
    TRIREME_KERNEL(encode_blocks<T>)(args, ctx.threads);
  });
}

void decode_blocks(Ctx& ctx, const BlockCode& code, const Tensor& y, const ConstTensor& scale,
                   const ConstTensor& codes, bool add) {
  const char* const op = "decode_blocks";
  const cpu::BlockShape shape = check_shape(op, code, y, scale, codes);
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, y.dtype(), [&]<class T>() {
    const cpu::BlockDecode<T> args{y.as<T>(), scale.as<float>(), codes.as<uint8_t>(), shape, add};
    if (ctx.gpu != nullptr) return cuda::decode_blocks<T>(*ctx.gpu, args);
    TRIREME_KERNEL(decode_blocks<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
