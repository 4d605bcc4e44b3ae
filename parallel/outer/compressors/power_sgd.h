// PowerSGD compressor: rank-r factors of a matrix by one step of a power iteration that starts from
// the last factor (Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression for
// distributed optimization").
//
//   P = orthonormal columns of V Q    (R, r)
//   Q = V^T P                         (C, r), also the state
//   decoded = P Q^T
// Both are stored transposed. Wire: P^T (r, R), then Q^T (r, C), of x's dtype. A matrix for which
// r (R + C) >= R C is sent as it is. Whole matrices only. A column of P that depends on those
// before it is 0; the state then keeps the old column of Q, so that it may help later.
#pragma once

#include "parallel/outer/compressors/compressor.h"

namespace trireme {

inline constexpr int kMaxPowerSgdRank = 64;  // orthonormal_rows() is for few rows

class PowerSgdCompressor : public Compressor {
 public:
  explicit PowerSgdCompressor(int rank) : rank_(rank) {}
  bool can_divide() const override { return false; }
  bool decodes_by_products() const override { return true; }
  int64_t block() const override { return 0; }
  int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const override;
  Shape state_shape(int64_t rows, int64_t columns) const override;
  void initialize_state(Ctx& ctx, const Tensor& state, const EncodingKey& key) const override;

 private:
  void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                     const Tensor& state, const EncodingKey& key) const override;
  void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                     bool add) const override;
  bool is_whole(int64_t rows, int64_t columns) const;  // sent as it is
  int rank_;
};

}  // namespace trireme
