// Quantized code of a tile's values (qwZ of Wang et al. 2023, "ZeRO++: extremely efficient
// collective communication for giant model training").
//
// The blocks of the code are those of whole logical tensors, so that the decoded values do not
// depend on how ranks divide a tensor: each rank encodes the blocks that its shard has whole. A
// block that the boundary of shards cuts is sent as it is, in parts, and every receiver encodes and
// decodes it. Small tensors, and those whose code is not smaller, are sent as they are. Padding is
// not sent.
//
// The message of a rank is the codes of its parts in ascending order (Compressor::wire_bytes).
// Messages of all ranks have the length of the longest one.
#pragma once

#include "parallel/outer/compressed_parts.h"
#include "parallel/outer/compression_config.h"
#include "parallel/outer/compressors/quantize.h"
#include "parallel/tile_code.h"

namespace trireme {

class QuantizedTileCode : public TileCode {
 public:
  // InputError if this rank's box of a parameter cuts blocks. The store must outlive this object.
  QuantizedTileCode(const ParameterStore& store, const Tile& tile,
                    const WeightCompressionConfig& config);
  void encode(Ctx& ctx, const Tensor& buffer) const override;
  void decode(Ctx& ctx, const Tensor& values, const Tensor& buffer) const override;

 private:
  struct Encoder {
    CompressedPart part;
    FlatRange bytes;  // of the rank's message
  };
  int64_t code_bytes(const CompressedPart& part) const;
  void add_encoder(std::vector<Encoder>& encoders, const CompressedPart& part) const;
  void add_rank_part(std::vector<Encoder>& encoders, const CompressedPart& part,
                     const FlatRange& stored);
  void add_cut_block(const CompressedPart& part, const FlatRange& block);
  const ParameterStore& store_;
  Tile tile_;
  QuantizeCompressor compressor_;
  std::vector<std::vector<Encoder>> encoders_;  // by rank
  std::vector<CompressedPart> cut_blocks_;      // in ascending order
};

// Codes of a store's tiles; empty if the configuration has none or the store has whole values.
// InputError as above.
TileCodes quantized_tile_codes(const ParameterStore& store, const WeightCompressionConfig& config);

}  // namespace trireme
