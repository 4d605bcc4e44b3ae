#include "parallel/outer/compressors/power_sgd.h"

#include "engine/ops/compression/orthonormal_rows.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/fill_normal.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

template <class Wire>
struct LowRankParts {
  LowRankParts(const Wire& wire, const ConstTensor& matrix, int64_t rank) {
    WireParts<Wire> parts(wire);
    p = parts.next(matrix.dtype(), {rank, matrix.size(0)});
    q = parts.next(matrix.dtype(), {rank, matrix.size(1)});
  }
  Wire p, q;
};

}  // namespace

bool PowerSgdCompressor::is_whole(int64_t rows, int64_t columns) const {
  return rank_ * (rows + columns) >= rows * columns;
}

int64_t PowerSgdCompressor::wire_bytes(DType dtype, int64_t rows, int64_t columns) const {
  if (is_whole(rows, columns)) return wire_part_bytes(dtype, rows * columns);
  return wire_part_bytes(dtype, rank_ * rows) + wire_part_bytes(dtype, rank_ * columns);
}

Shape PowerSgdCompressor::state_shape(int64_t rows, int64_t columns) const {
  if (is_whole(rows, columns)) return {0};
  return {rank_, columns};
}

void PowerSgdCompressor::initialize_state(Ctx& ctx, const Tensor& state,
                                          const EncodingKey& key) const {
  if (state.numel() == 0) return;
  // A stream of its own: the parameter's initial values have the one of its name.
  const uint64_t stream = substream(stream_id("powersgd"), key.stream);
  fill_normal(ctx, state.reshape({state.numel()}), {key.seed, stream}, 1.0, {});
}

void PowerSgdCompressor::encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                                       const Tensor& residual, const Tensor& state,
                                       const EncodingKey& /*key*/) const {
  if (residual.present()) add(ctx, residual, residual, x);
  const ConstTensor v = residual.present() ? ConstTensor(residual) : x;
  if (is_whole(x.size(0), x.size(1))) {
    transfer(ctx, WireParts<Tensor>(wire).next(x.dtype(), x.shape()), v);
    if (residual.present()) fill_zero(ctx, residual);
    return;
  }
  const LowRankParts<Tensor> parts(wire, x, rank_);
  const Tensor &p = parts.p, &q = parts.q;
  gemm(ctx, p, state, Transpose::kNo, v, Transpose::kYes);
  orthonormal_rows(ctx, p);
  gemm(ctx, q, p, Transpose::kNo, v, Transpose::kNo);
  copy_nonzero_rows(ctx, state, q);
  if (residual.present())
    gemm(ctx, residual, p, Transpose::kYes, q, Transpose::kNo,
         {.alpha = -1.0f, .accumulate = true});
}

void PowerSgdCompressor::decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                                       const EncodingKey& /*key*/, bool add) const {
  if (is_whole(y.size(0), y.size(1))) {
    const ConstTensor part = WireParts<ConstTensor>(wire).next(y.dtype(), y.shape());
    if (add) return trireme::add(ctx, y, y, part);
    return transfer(ctx, y, part);
  }
  const LowRankParts<ConstTensor> parts(wire, y, rank_);
  gemm(ctx, y, parts.p, Transpose::kYes, parts.q, Transpose::kNo, {.accumulate = add});
}

}  // namespace trireme
