// Compressor of tensors that are sent as they are, beside those that are compressed.
//
// Wire: the elements, of x's dtype. It leaves no residual and sets none.
#pragma once

#include "parallel/outer/compressors/compressor.h"

namespace trireme {

class ExactCompressor : public Compressor {
 public:
  bool takes_16_bits() const override { return true; }
  int64_t block() const override { return 1024; }
  int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const override;

 private:
  void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                     const Tensor& state, const EncodingKey& key) const override;
  void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                     bool add) const override;
};

}  // namespace trireme
