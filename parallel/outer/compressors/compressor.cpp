#include "parallel/outer/compressors/compressor.h"

namespace trireme {
namespace {

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

void check_matrix(const char* what, const Compressor& compressor, const ConstTensor& matrix,
                  const ConstTensor& wire) {
  TRIREME_CHECK(matrix.rank() == 2, what, ": the matrix is ", matrix.shape(), ", expected (R, C)");
  const bool known = matrix.dtype() == DType::kF32 || matrix.dtype() == DType::kF64 ||
                     (compressor.takes_16_bits() && is_half(matrix.dtype()));
  TRIREME_CHECK(known, what, ": the matrix is ", matrix.dtype(), ", which this method cannot take");
  check_contiguous(what, "matrix", matrix);
  check_operand(what, "wire", wire, DType::kU8,
                {compressor.wire_bytes(matrix.dtype(), matrix.size(0), matrix.size(1))});
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(wire.raw()) % 8 == 0, what,
                ": the wire is not at a multiple of 8 bytes");
}

}  // namespace

void Compressor::encode(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                        const Tensor& state, const EncodingKey& key) const {
  const char* const what = "encode";
  check_matrix(what, *this, x, wire);
  if (residual.present()) check_operand(what, "residual", residual, x.dtype(), x.shape());
  const Shape kept = state_shape(x.size(0), x.size(1));
  if (kept.numel() > 0) check_operand(what, "state", state, x.dtype(), kept);
  encode_matrix(ctx, wire, x, residual, state, key);
}

void Compressor::decode(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                        bool add) const {
  check_matrix("decode", *this, y, wire);
  decode_matrix(ctx, y, wire, key, add);
}

int64_t wire_part_bytes(DType dtype, int64_t elements) {
  return round_up(elements * dtype_size(dtype), 8);
}

}  // namespace trireme
