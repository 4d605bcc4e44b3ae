// Compressor "quantize": 8, 4 or 1 bits per element and one scale per block
// (engine/ops/compression/block_code.h).
//
// Wire: scales float32 (R, ceil(C / block)), then the codes of the rows.
#pragma once

#include "engine/ops/compression/block_code.h"
#include "parallel/outer/compressors/compressor.h"

namespace trireme {

class QuantizeCompressor : public Compressor {
 public:
  explicit QuantizeCompressor(const BlockCode& code) : code_(code) {}
  bool takes_16_bits() const override { return true; }
  int64_t block() const override { return code_.block; }
  int64_t block_multiple() const override { return 8; }
  int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const override;

 private:
  void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
                     const Tensor& state, const EncodingKey& key) const override;
  void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
                     bool add) const override;
  BlockCode code_;
};

}  // namespace trireme
