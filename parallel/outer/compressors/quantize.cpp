#include "parallel/outer/compressors/quantize.h"

namespace trireme {
namespace {

template <class Wire>
struct QuantizedParts {
  QuantizedParts(const Wire& wire, const BlockCode& code, const Shape& matrix) {
    WireParts<Wire> parts(wire);
    scale = parts.next(DType::kF32, {matrix[0], ceil_div(matrix[1], code.block)});
    codes = parts.next(DType::kU8, {matrix[0], block_code_bytes(code, matrix[1])});
  }
  Wire scale, codes;
};

}  // namespace

int64_t QuantizeCompressor::wire_bytes(DType /*dtype*/, int64_t rows, int64_t columns) const {
  return wire_part_bytes(DType::kF32, rows * ceil_div(columns, code_.block)) +
         wire_part_bytes(DType::kU8, rows * block_code_bytes(code_, columns));
}

void QuantizeCompressor::encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                                       const Tensor& residual, const Tensor& /*state*/,
                                       const EncodingKey& /*key*/) const {
  const QuantizedParts<Tensor> parts(wire, code_, x.shape());
  encode_blocks(ctx, code_, parts.scale, parts.codes, x, residual);
}

void QuantizeCompressor::decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                                       const EncodingKey& /*key*/, bool add) const {
  const QuantizedParts<ConstTensor> parts(wire, code_, y.shape());
  decode_blocks(ctx, code_, y, parts.scale, parts.codes, add);
}

}  // namespace trireme
