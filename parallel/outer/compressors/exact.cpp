#include "parallel/outer/compressors/exact.h"

#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {

int64_t ExactCompressor::wire_bytes(DType dtype, int64_t rows, int64_t columns) const {
  return wire_part_bytes(dtype, rows * columns);
}

void ExactCompressor::encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                                    const Tensor& residual, const Tensor& /*state*/,
                                    const EncodingKey& /*key*/) const {
  TRIREME_CHECK(!residual.present(), "encode: exact values have no residual");
  transfer(ctx, WireParts<Tensor>(wire).next(x.dtype(), x.shape()), x);
}

void ExactCompressor::decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                                    const EncodingKey& /*key*/, bool add) const {
  const ConstTensor x = WireParts<ConstTensor>(wire).next(y.dtype(), y.shape());
  if (add)
    trireme::add(ctx, y, y, x);
  else
    transfer(ctx, y, x);
}

}  // namespace trireme
