// Frozen weights of linear layers in 4 bits (engine/ops/nf4.h): of each only its codes and scales
// are in memory. A product unpacks the weight it reads into memory of the step, and gives it back.
//
// A rank packs its box of a weight to the bits of the whole weight's: a box's columns begin at a
// block of 64 and end at one, or with the row. With double quantisation the second scales are those
// of the whole weight, which a rank then reads, a piece at a time, where tensor parallelism gives
// it a part.
//
// ZeRO does not divide these bytes: every rank has all of its boxes, at any stage.
#pragma once

#include <functional>
#include <vector>

#include "engine/ops/nf4.h"
#include "parallel/parameter_store.h"

namespace trireme {

class PackedWeights {
 public:
  // Those of `specs` that are packed. InputError where a box has half a block, or an odd number of
  // inputs.
  PackedWeights(const std::vector<ParameterSpec>& specs, bool double_quantization);
  void allocate(Ctx& ctx);
  int64_t bytes() const { return bytes_; }

  void pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read);
  // w (rows, columns) of the box, of any float type.
  void unpack(Ctx& ctx, ParamHandle h, const Tensor& w) const;

 private:
  // Byte offsets of the parts; of double quantisation scale is in bytes, and groups and offset are
  // there.
  struct Place {
    TensorBox box;
    Shape whole;                                // the weight's
    int64_t begin = 0, bytes = 0;               // in the block
    int64_t scale = 0, groups = 0, offset = 0;  // from begin, where the codes are
    int64_t rows() const { return box.extent[0]; }
    int64_t columns() const { return box.extent[1]; }
    int64_t blocks() const { return ceil_div(columns(), kNf4Block); }
    int64_t whole_blocks() const { return ceil_div(whole[1], kNf4Block); }
    int64_t scale_groups() const { return ceil_div(whole[0] * whole_blocks(), kNf4ScaleGroup); }
  };
  Place place_of(const ParameterSpec& spec) const;
  Tensor part(const Buffer& block, int64_t at, DType dtype, const Shape& shape) const;
  void pack_scales(const Place& place, const Tensor& scale, const Buffer& packed) const;
  bool double_;
  std::vector<Place> places_;  // of every handle; no bytes: not packed
  int64_t bytes_ = 0;
  Buffer block_;
};

}  // namespace trireme
