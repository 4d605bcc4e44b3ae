// Frozen linear weights in 4 bits (engine/ops/quantized/nf4.h). Only codes and scales are kept in
// memory. A product unpacks the weight it reads into the step's arena and frees it afterwards.
//
// A rank's packed box has the same bits as that part of the packed whole weight: the columns of a
// box begin at a multiple of 64 (kNf4Block) and end at a multiple of 64 or at the end of the row.
// With double quantization the second-level scales are those of the whole weight. So with double
// quantization a rank that holds only a part of a weight reads the whole weight, piece by piece.
//
// ZeRO does not shard these bytes: every rank holds all of its boxes, at any stage.
#pragma once

#include <functional>
#include <vector>

#include "engine/ops/quantized/nf4.h"
#include "parallel/parameter_store.h"

namespace trireme {

class PackedWeights {
 public:
  // Lays out the packed parameters of `specs`. InputError if a box cuts a quantization block or has
  // an odd number of columns (inputs). double_quantization: the scales are stored in 8 bits.
  PackedWeights(const std::vector<ParameterSpec>& specs, bool double_quantization);
  void allocate(Ctx& ctx);  // in the context's memory
  int64_t bytes() const { return bytes_; }

  // Quantizes parameter h, read piece by piece as float32. InputError if an element is not finite.
  void pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read);
  // Writes w (rows, columns), the box's values, in any float type.
  void unpack(Ctx& ctx, ParamHandle h, const Tensor& w) const;

 private:
  // Byte offsets of a weight's parts. groups and offset are used, and scales are bytes, only with
  // double quantization.
  struct Nf4Parameter {
    TensorBox box;
    Shape whole;                                // shape of the whole weight
    int64_t begin = 0, bytes = 0;               // bytes within block_
    int64_t scale = 0, groups = 0, offset = 0;  // relative to begin, where the codes start
    int64_t rows() const { return box.extent[0]; }
    int64_t columns() const { return box.extent[1]; }
    int64_t blocks() const { return ceil_div(columns(), kNf4Block); }
    int64_t whole_blocks() const { return ceil_div(whole[1], kNf4Block); }
    int64_t scale_groups() const { return ceil_div(whole[0] * whole_blocks(), kNf4ScaleGroup); }
  };
  Nf4Parameter packed_parameter(const ParameterSpec& spec) const;
  Tensor part(const Buffer& block, int64_t at, DType dtype, const Shape& shape) const;
  void pack_scales(const Nf4Parameter& parameter, const Tensor& scale, const Buffer& packed) const;
  bool double_;
  std::vector<Nf4Parameter> packed_;  // by handle; no bytes: not packed
  int64_t bytes_ = 0;
  Buffer block_;
};

}  // namespace trireme
