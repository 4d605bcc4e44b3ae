// Compressors "top_k" and "random_k": a share of the elements of each block
// (engine/ops/compression/sparse_code.h).
//
// Wire: the values (R, K) of x's dtype, then, of top_k only, their positions (R, K) uint16. The
// positions of random_k follow from the key of the encoding.
#pragma once

#include "engine/ops/compression/sparse_code.h"
#include "parallel/outer/compressors/compressor.h"

namespace trireme {

class TopKCompressor : public Compressor {
 public:
  explicit TopKCompressor(const SparseCode& code) : code_(code) {}
  int64_t block() const override { return code_.block; }
  int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const override;

 private:
  void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                     const Tensor& state, const EncodingKey& key) const override;
  void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                     bool add) const override;
  SparseCode code_;
};

class RandomKCompressor : public Compressor {
 public:
  explicit RandomKCompressor(const SparseCode& code) : code_(code) {}
  int64_t block() const override { return code_.block; }
  int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const override;

 private:
  void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                     const Tensor& state, const EncodingKey& key) const override;
  void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                     bool add) const override;
  Activation positions(Ctx& ctx, int64_t rows, int64_t columns, const EncodingKey& key) const;
  SparseCode code_;
};

}  // namespace trireme
