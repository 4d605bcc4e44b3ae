// Lossy compressor of matrices that ranks exchange over slow links: gradients, updates, parameters.
//
// A matrix is a logical tensor (R, C), a vector being one row, or a part of one. With error
// feedback the sender keeps what it could not send, the residual, and adds it to the next matrix:
//   v = x + residual    wire = encode(v)    residual = v - decode(wire)
// so the sum of everything sent plus the last residual is the sum of all x, up to rounding.
//
// The wire is a range of bytes whose length depends on the shape only. Encoding is deterministic.
// decode() gives the same bits on all ranks; those of a method that decodes by matrix products, if
// the ranks have the same instruction set and number of threads, and no autotuned products.
//
// x must be finite. Otherwise the residual and the decoded matrix are undefined, and with random_k
// a receiver may not see it: check gradients before they are encoded.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// Identity of an encoding. Random choices depend on nothing else, so that all ranks make the same
// choices.
struct EncodingKey {
  uint64_t seed = 0;
  uint64_t stream = 0;  // of the logical tensor: stream_id(name)
  int64_t round = 0;    // ascending; the same on all ranks that exchange the tensor
  // Block b of row r of this part is number first_block + r * block_stride + b of the logical
  // tensor. block_stride 0: the part has whole rows.
  int64_t first_block = 0, block_stride = 0;
};

class Compressor {
 public:
  virtual ~Compressor() = default;

  // True if a part that consists of whole blocks of `block()` columns has the same code as in the
  // whole matrix, so that ranks may encode a tensor that they share. False: whole matrices only.
  virtual bool can_divide() const { return true; }
  // True if matrices may also be bfloat16 or float16.
  virtual bool takes_16_bits() const { return false; }
  // True if the bits of decode() depend on how this rank computes matrix products.
  virtual bool decodes_by_products() const { return false; }
  virtual int64_t block() const = 0;                    // columns; 0 if can_divide() is false
  virtual int64_t block_multiple() const { return 1; }  // of which every block() is a multiple

  // Bytes of an encoded (rows, columns) matrix of `dtype`: a multiple of 8.
  virtual int64_t wire_bytes(DType dtype, int64_t rows, int64_t columns) const = 0;

  // State that the sender keeps per matrix besides the residual: its shape, of x's dtype, and its
  // initial values. {0}: none.
  virtual Shape state_shape(int64_t /*rows*/, int64_t /*columns*/) const { return {0}; }
  virtual void initialize_state(Ctx& /*ctx*/, const Tensor& /*state*/,
                                const EncodingKey& /*key*/) const {}

  // wire (wire_bytes) uint8, contiguous, at an address that is a multiple of 8. x (R, C) float32 or
  // float64, or 16-bit (takes_16_bits), contiguous. residual (R, C) of x's dtype; absent: no error
  // feedback. state: absent if there is none. Scratch comes from the context.
  void encode(Ctx& ctx, const Tensor& wire, const ConstTensor& x, const Tensor& residual,
              const Tensor& state, const EncodingKey& key) const;
  // y (R, C) of the dtype that was encoded: the decoded matrix; with `add`, y + the matrix. The
  // bytes of the wire may be arbitrary: they change values only.
  void decode(Ctx& ctx, const Tensor& y, const ConstTensor& wire, const EncodingKey& key,
              bool add) const;

 private:
  // With checked operands.
  virtual void encode_matrix(Ctx& ctx, const Tensor& wire, const ConstTensor& x,
                             const Tensor& residual, const Tensor& state,
                             const EncodingKey& key) const = 0;
  virtual void decode_matrix(Ctx& ctx, const Tensor& y, const ConstTensor& wire,
                             const EncodingKey& key, bool add) const = 0;
};

// Bytes of `elements` in a wire, where each part begins at a multiple of 8 bytes.
int64_t wire_part_bytes(DType dtype, int64_t elements);

// Splits a wire, a Tensor or ConstTensor of bytes, into its parts.
template <class Wire>
class WireParts {
 public:
  explicit WireParts(const Wire& wire) : wire_(wire) {}
  Wire next(DType dtype, const Shape& shape) {
    const int64_t begin = used_;
    used_ += wire_part_bytes(dtype, shape.numel());
    return {wire_.slice(0, begin, used_).raw(), dtype, shape, wire_.device()};
  }

 private:
  Wire wire_;
  int64_t used_ = 0;
};

}  // namespace trireme
