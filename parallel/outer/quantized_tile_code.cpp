#include "parallel/outer/quantized_tile_code.h"

#include <algorithm>

#include "parallel/comm/collectives/collectives.h"

namespace trireme {
namespace {

// Blocks of a part whose elements are numbered row after row.
struct PartBlocks {
  int64_t columns, block;

  FlatRange around(int64_t element) const {
    const int64_t row = element / columns * columns, column = element - row;
    return {row + column / block * block, row + std::min((column / block + 1) * block, columns)};
  }
};

// Elements [begin, end) of a part as a matrix of `columns` columns.
CompressedPart matrix_of(const CompressedPart& part, const FlatRange& elements, int64_t columns) {
  return {.offset = part.offset + elements.begin,
          .rows = elements.size() / columns,
          .columns = columns};
}

Tensor matrix_at(const Tensor& values, int64_t begin, const CompressedPart& part) {
  return values.slice(0, begin, begin + part.elements()).reshape({part.rows, part.columns});
}

}  // namespace

QuantizedTileCode::QuantizedTileCode(const ParameterStore& store, const Tile& tile,
                                     const WeightCompressionConfig& config)
    : TileCode(store.sharding().of(tile.region)),
      store_(store),
      tile_(tile),
      compressor_({.bits = config.bits, .block = config.block}),
      encoders_(static_cast<size_t>(rank_.size)) {
  constexpr uint64_t kNoSeed = 0;  // no random choices
  const CompressedTensors tensors{&compressor_, config.min_bytes, dtype_size(DType::kF32), true};
  for (const CompressedPart& part : region_parts(store, tile.region, tensors, kNoSeed)) {
    const FlatRange whole = part.range();
    if (whole.begin < tile.range.begin || whole.end > tile.range.end) continue;
    for (int rank = 0; rank < rank_.size; ++rank) {
      const Piece piece = piece_of(tile.range.size(), rank_.size, rank);
      const FlatRange stored{std::max(whole.begin, tile.range.begin + piece.begin),
                             std::min(whole.end, tile.range.begin + piece.end)};
      if (stored.begin < stored.end)
        add_rank_part(encoders_[static_cast<size_t>(rank)], part, stored);
    }
  }
  for (const std::vector<Encoder>& encoders : encoders_)
    if (!encoders.empty()) message_bytes_ = std::max(message_bytes_, encoders.back().bytes.end);
}

int64_t QuantizedTileCode::code_bytes(const CompressedPart& part) const {
  return compressor_of(part, compressor_).wire_bytes(store_.dtype(), part.rows, part.columns);
}

void QuantizedTileCode::add_encoder(std::vector<Encoder>& encoders,
                                    const CompressedPart& part) const {
  const int64_t begin = encoders.empty() ? 0 : encoders.back().bytes.end;
  encoders.push_back({part, {begin, begin + code_bytes(part)}});
}

void QuantizedTileCode::add_cut_block(const CompressedPart& part, const FlatRange& block) {
  if (!cut_blocks_.empty() && cut_blocks_.back().offset == part.offset + block.begin) return;
  cut_blocks_.push_back(matrix_of(part, block, block.size()));
  scratch_bytes_ = std::max(scratch_bytes_, code_bytes(cut_blocks_.back()));
}

// Adds the part's elements that a rank stores: whole blocks as up to three matrices, what is before
// and after them exactly.
void QuantizedTileCode::add_rank_part(std::vector<Encoder>& encoders, const CompressedPart& part,
                                      const FlatRange& stored) {
  const PartBlocks blocks{part.columns, compressor_.block()};
  const FlatRange all{stored.begin - part.offset, stored.end - part.offset};
  const auto add_exact = [&](const FlatRange& elements) {
    CompressedPart exact = matrix_of(part, elements, elements.size());
    exact.exact = true;
    add_encoder(encoders, exact);
  };
  if (part.exact) return add_exact(all);
  for (int64_t at = all.begin; at < all.end;) {
    const FlatRange block = blocks.around(at);
    if (block.begin < at || block.end > all.end) {
      const FlatRange cut{at, std::min(block.end, all.end)};
      add_exact(cut);
      add_cut_block(part, block);
      at = cut.end;
      continue;
    }
    // The whole rows that follow, or the whole blocks up to the end of the row or of the shard.
    const int64_t row = at / part.columns * part.columns;
    const int64_t rows = (all.end - at) / part.columns;
    FlatRange whole{at, at + rows * part.columns};
    if (at != row || rows == 0) {
      const int64_t row_end = row + part.columns;
      whole.end = all.end >= row_end ? row_end : blocks.around(all.end).begin;
    }
    add_encoder(encoders, matrix_of(part, whole, std::min(whole.size(), part.columns)));
    at = whole.end;
  }
}

void QuantizedTileCode::encode(Ctx& ctx, const Tensor& buffer) const {
  const Tensor message = own_message(buffer), values = store_.flat_values();
  for (const Encoder& e : encoders_[static_cast<size_t>(rank_.index)]) {
    const Tensor x = matrix_at(values, store_.value_map().offset(e.part.offset), e.part);
    compressor_of(e.part, compressor_)
        .encode(ctx, message.slice(0, e.bytes.begin, e.bytes.end), x, {}, {}, {});
  }
}

void QuantizedTileCode::decode(Ctx& ctx, const Tensor& values, const Tensor& buffer) const {
  const auto values_of = [&](const CompressedPart& part) {
    return matrix_at(values, part.offset - tile_.range.begin, part);
  };
  for (int rank = 0; rank < rank_.size; ++rank) {
    const Tensor code = message(buffer, rank);
    for (const Encoder& e : encoders_[static_cast<size_t>(rank)])
      compressor_of(e.part, compressor_)
          .decode(ctx, values_of(e.part), code.slice(0, e.bytes.begin, e.bytes.end), {}, false);
  }
  for (const CompressedPart& block : cut_blocks_) {
    const Tensor code = buffer.slice(0, scratch_begin(), scratch_begin() + code_bytes(block));
    compressor_.encode(ctx, code, values_of(block), {}, {}, {});
    compressor_.decode(ctx, values_of(block), code, {}, false);
  }
}

TileCodes quantized_tile_codes(const ParameterStore& store, const WeightCompressionConfig& config) {
  TileCodes codes;
  if (!config.enabled || store.sharding().stage < 3) return codes;
  try {
    for (const Tile& tile : store.tiles())
      codes.push_back(std::make_unique<QuantizedTileCode>(store, tile, config));
  } catch (const InputError& e) {
    fail_input("compression.parameters: ", e.what());
  }
  return codes;
}

}  // namespace trireme
