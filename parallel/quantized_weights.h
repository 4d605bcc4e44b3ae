// Linear weights and the head in a quantized block format of 8 or 4 bits
// (engine/ops/quantized/quantized_weight.h), for inference. Only the blocks are in memory, and
// products read them directly.
//
// A rank's packed box has the same bits as that part of the packed whole weight: the columns of a
// box begin at a multiple of 32 (kQuantBlock), and end at a multiple of 32 or at the end of the
// row. Blocks are encoded as in GGUF files (engine/io/gguf_blocks.h); re-encoding a GGUF block made
// by ggml's rule gives the same bits.
#pragma once

#include <vector>

#include "engine/ops/quantized/quantized_weight.h"
#include "parallel/parameter_store.h"

namespace trireme {

class QuantizedWeights {
 public:
  // Lays out the packed parameters of `specs`: linear weights in `format`, others in 8 bits.
  // InputError if a box cuts a quantization block.
  QuantizedWeights(const std::vector<ParameterSpec>& specs, BlockFormat format);
  void allocate(Ctx& ctx);  // in the context's memory
  int64_t bytes() const { return bytes_; }

  // Quantizes parameter h, read piece by piece as float32. InputError if an element is not finite
  // or its magnitude is above 65504, the largest float16.
  void pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read);
  // Blocks of one parameter. Before allocate() (a planning run) a shape without memory.
  QuantizedMatrix matrix(ParamHandle h) const;
  // Matrices of the fused weight that consists of parameters `first` .. `last`, in their order. A
  // parameter is merged into the previous matrix if it has the same format, follows it in memory,
  // and the matrix so far consists of whole row groups (kWeightGroup); else it is one of its own.
  std::vector<QuantizedMatrix> matrices(ParamHandle first, ParamHandle last) const;

 private:
  struct QuantizedParameter {
    std::string name;
    TensorBox box;
    BlockFormat format = BlockFormat::kQ8_0;
    int64_t begin = 0, bytes = 0;  // bytes within block_
    int64_t rows() const { return box.extent[0]; }
    int64_t columns() const { return box.extent[1]; }
  };
  static QuantizedParameter packed_parameter(const ParameterSpec& spec, BlockFormat format);
  QuantizedMatrix view(const QuantizedParameter& parameter, int64_t rows) const;
  std::vector<QuantizedParameter> packed_;  // by handle; empty name: not packed
  int64_t bytes_ = 0;
  Buffer block_;
};

}  // namespace trireme
