#include "parallel/outer/compressors/sparsify.h"

namespace trireme {
namespace {

Shape kept_shape(const SparseCode& code, const ConstTensor& matrix) {
  return {matrix.size(0), kept_in_row(code, matrix.size(1))};
}

template <class Wire>
struct TopKParts {
  TopKParts(const Wire& wire, const SparseCode& code, const ConstTensor& matrix) {
    WireParts<Wire> parts(wire);
    values = parts.next(matrix.dtype(), kept_shape(code, matrix));
    index = parts.next(DType::kU16, kept_shape(code, matrix));
  }
  Wire values, index;
};

}  // namespace

int64_t TopKCompressor::wire_bytes(DType dtype, int64_t rows, int64_t columns) const {
  const int64_t kept = rows * kept_in_row(code_, columns);
  return wire_part_bytes(dtype, kept) + wire_part_bytes(DType::kU16, kept);
}

void TopKCompressor::encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                                   const Tensor& residual, const Tensor& /*state*/,
                                   const EncodingKey& /*key*/) const {
  const TopKParts<Tensor> parts(wire, code_, x);
  select_largest(ctx, code_, parts.index, x, residual);
  gather_selected(ctx, code_, parts.values, parts.index, x, residual);
}

void TopKCompressor::decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                                   const EncodingKey& /*key*/, bool add) const {
  const TopKParts<ConstTensor> parts(wire, code_, y);
  scatter_selected(ctx, code_, y, parts.values, parts.index, add);
}

int64_t RandomKCompressor::wire_bytes(DType dtype, int64_t rows, int64_t columns) const {
  return wire_part_bytes(dtype, rows * kept_in_row(code_, columns));
}

Activation RandomKCompressor::positions(Ctx& ctx, int64_t rows, int64_t columns,
                                        const EncodingKey& key) const {
  Activation index =
      ctx.allocate("random_k.index", DType::kU16, {rows, kept_in_row(code_, columns)});
  const uint64_t stream = substream(stream_id("random_k"), key.stream);
  select_random(ctx, code_, *index, columns,
                {.key = {key.seed, substream(stream, static_cast<uint64_t>(key.round))},
                 .first = key.first_block,
                 .stride = key.block_stride});
  return index;
}

void RandomKCompressor::encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                                      const Tensor& residual, const Tensor& /*state*/,
                                      const EncodingKey& key) const {
  const Tensor values = WireParts<Tensor>(wire).next(x.dtype(), kept_shape(code_, x));
  const Activation index = positions(ctx, x.size(0), x.size(1), key);
  gather_selected(ctx, code_, values, *index, x, residual);
}

void RandomKCompressor::decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                                      const EncodingKey& key, bool add) const {
  const ConstTensor values = WireParts<ConstTensor>(wire).next(y.dtype(), kept_shape(code_, y));
  const Activation index = positions(ctx, y.size(0), y.size(1), key);
  scatter_selected(ctx, code_, y, values, *index, add);
}

}  // namespace trireme
