// Weights of linear layers, and a head, in blocks of 8 or 4 bits (engine/ops/block_weight.h), for
// inference: of each only its blocks are in memory, and products read them as they are.
//
// A rank packs its box of a weight to the bits of the whole weight's: a box's columns begin at a
// block of 32 and end at one, or with the row. Blocks are made as GGUF files have them
// (engine/io/gguf_blocks.h), and blocks of such a file that ggml's rule made are the file's again.
#pragma once

#include <vector>

#include "engine/ops/block_weight.h"
#include "parallel/parameter_store.h"

namespace trireme {

class BlockWeights {
 public:
  // Those of `specs` that are packed: linear ones in `format`, the others in 8 bits. InputError
  // where a box has half a block.
  BlockWeights(const std::vector<ParameterSpec>& specs, BlockFormat format);
  void allocate(Ctx& ctx);  // where the context computes
  int64_t bytes() const { return bytes_; }

  void pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read);
  // Before allocate() (a planning run) it has a shape but no memory.
  BlockMatrix matrix(ParamHandle h) const;
  // Of the fused matrix of `first` .. `last`: one for each, or for neighbours that begin with whole
  // groups of rows.
  std::vector<BlockMatrix> matrices(ParamHandle first, ParamHandle last) const;

 private:
  struct Place {
    std::string name;
    TensorBox box;
    BlockFormat format = BlockFormat::kQ8_0;
    int64_t begin = 0, bytes = 0;  // in the block
    int64_t rows() const { return box.extent[0]; }
    int64_t columns() const { return box.extent[1]; }
  };
  static Place place_of(const ParameterSpec& spec, BlockFormat format);
  BlockMatrix view(const Place& place, int64_t rows) const;
  std::vector<Place> places_;  // of every handle; no name: not packed
  int64_t bytes_ = 0;
  Buffer block_;
};

}  // namespace trireme
