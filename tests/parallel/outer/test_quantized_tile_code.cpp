// Codes of gathered weights: the bits of the code of whole tensors, whatever the division.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "engine/ops/context.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/outer/quantized_tile_code.h"
#include "tests/support/compare.h"

namespace trireme::test::test_quantized_tile_code {
namespace {

ParameterSpec random_matrix(const char* name, Shape shape, int block, bool fused = false) {
  return {.name = name,
          .shape = shape,
          .init = InitKind::kNormal,
          .init_std = 1,
          .block = block,
          .fused_with_previous = fused};
}

ParameterList list_of_matrices() {
  ParameterList parameters;
  parameters.add(random_matrix("table", Shape{13, 37}, 0));
  parameters.add(random_matrix("norm", Shape{9}, 1));
  parameters.add(random_matrix("q", Shape{5, 40}, 1));
  parameters.add(random_matrix("k", Shape{3, 40}, 1, true));
  parameters.add(random_matrix("bias", Shape{83}, 1));
  parameters.add(random_matrix("narrow", Shape{50, 3}, 1));
  parameters.add(random_matrix("slim", Shape{50, 5}, 1));
  ParameterSpec tied = random_matrix("head", Shape{7, 21}, 1);
  tied.partial = PartialSum::kTiedStages;  // a tile of its own
  parameters.add(tied);
  return parameters;
}

constexpr WeightCompressionConfig kEightBits{
    .enabled = true, .bits = 8, .block = 8, .min_bytes = 40};

std::unique_ptr<ParameterStore> filled_store(Ctx& ctx, DType dtype, GroupCoord rank) {
  auto store = std::make_unique<ParameterStore>(list_of_matrices(), dtype, Sharding{3, rank, rank});
  store->allocate(ctx, false);
  store->initialize(ctx, 7);
  return store;
}

// Values that the ranks of a group decode from the messages of all, of one tile. All have the same.
std::vector<double> decoded_tile(Ctx& ctx, DType dtype, int ranks, size_t tile_index,
                                 const WeightCompressionConfig& config) {
  std::vector<std::unique_ptr<ParameterStore>> stores;
  std::vector<QuantizedTileCode> codes;
  std::vector<Activation> buffers;
  for (int i = 0; i < ranks; ++i) {
    stores.push_back(filled_store(ctx, dtype, {ranks, i}));
    codes.emplace_back(*stores.back(), stores.back()->tiles()[tile_index], config);
    buffers.push_back(ctx.arena.allocate("buffer", DType::kU8, Shape{codes.back().buffer_bytes()}));
    EXPECT_EQ(codes.back().message_bytes(), codes[0].message_bytes());
    codes.back().encode(ctx, *buffers.back());
  }
  std::vector<double> first;
  for (int i = 0; i < ranks; ++i) {
    const auto at = static_cast<size_t>(i);
    for (int from = 0; from < ranks; ++from)
      if (from != i)
        transfer(ctx, codes[static_cast<size_t>(from)].own_message(*buffers[at]),
                 codes[static_cast<size_t>(from)].own_message(*buffers[static_cast<size_t>(from)]));
    const Activation values =
        ctx.arena.allocate("values", dtype, Shape{stores[at]->tiles()[tile_index].range.size()});
    fill_bytes(ctx, values, 0);
    codes[at].decode(ctx, values, *buffers[at]);
    const std::vector<double> got = to_doubles(values);
    if (i == 0) first = got;
    EXPECT_EQ(got, first) << "rank " << i;
  }
  return first;
}

// The values of a parameter after encoding it as a whole, from the formulas of block_code.h.
std::vector<double> coded(const std::vector<double>& values, int64_t columns, int64_t block,
                          double levels, DType dtype) {
  std::vector<double> out = values;
  for (int64_t row = 0; row < std::ssize(values); row += columns)
    for (int64_t begin = row; begin < row + columns; begin += block) {
      const int64_t end = std::min(begin + block, row + columns);
      double largest = 0;
      for (int64_t i = begin; i < end; ++i)
        largest = std::max(largest, std::abs(values[static_cast<size_t>(i)]));
      const double scale = dtype == DType::kF64
                               ? static_cast<double>(static_cast<float>(largest / levels))
                               : static_cast<float>(largest) / static_cast<float>(levels);
      for (int64_t i = begin; i < end; ++i) {
        double& v = out[static_cast<size_t>(i)];
        const double steps =
            dtype == DType::kF64
                ? std::nearbyint(v * (1 / scale))
                : std::nearbyint(static_cast<float>(v) * (1 / static_cast<float>(scale)));
        v = dtype == DType::kF64 ? steps * scale
                                 : static_cast<float>(steps) * static_cast<float>(scale);
      }
    }
  return out;
}

// True for the shapes above that are below min_bytes in float32, or whose code is not smaller than
// 16-bit elements.
bool is_sent_exactly(const Shape& shape, const WeightCompressionConfig& config) {
  const bool narrow = shape == Shape{50, 3} || (shape == Shape{9} && config.bits == 8);
  return narrow || 4 * shape.numel() < config.min_bytes;
}

void expect_whole_tensors_coded(DType dtype, const WeightCompressionConfig& config) {
  Ctx ctx(1, "test");
  const auto whole = filled_store(ctx, dtype, {1, 0});
  const std::vector<double> values = to_doubles(whole->flat_values());
  for (size_t t = 0; t < whole->tiles().size(); ++t) {
    const FlatRange tile = whole->tiles()[t].range;
    for (const int ranks : {1, 2, 3, 5, 16, 61}) {
      const std::vector<double> got = decoded_tile(ctx, dtype, ranks, t, config);
      for (ParamHandle h = 0; h < std::ssize(whole->specs()); ++h) {
        const FlatRange range = whole->range(h);
        if (range.begin < tile.begin || range.end > tile.end) continue;
        const ParameterSpec& spec = whole->specs()[static_cast<size_t>(h)];
        const auto begin = values.begin() + range.begin;
        std::vector<double> want(begin, begin + range.size());
        if (!is_sent_exactly(spec.shape, config))
          want = coded(want, spec.shape[spec.shape.rank() - 1], config.block,
                       config.bits == 8 ? 127 : 7, dtype);
        const auto from = got.begin() + (range.begin - tile.begin);
        const std::vector<double> of_ranks(from, from + range.size());
        if (dtype == DType::kBF16) {  // the formula is not rounded to bfloat16
          for (size_t i = 0; i < want.size(); ++i)
            ASSERT_NEAR(of_ranks[i], want[i], std::abs(want[i]) / 256) << spec.name << " " << i;
          continue;
        }
        EXPECT_EQ(of_ranks, want) << spec.name << " on " << ranks << " ranks";
      }
    }
  }
}

TEST(QuantizedTileCode, RanksDecodeTheCodeOfWholeTensors) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    expect_whole_tensors_coded(dtype, kEightBits);
    expect_whole_tensors_coded(dtype, {.enabled = true, .bits = 4, .block = 16, .min_bytes = 0});
  }
}

int64_t padded(int64_t bytes) { return round_up(bytes, 8); }

// Bytes of the message of elements [begin, end) of a matrix: every run of whole rows, every run of
// other whole blocks in a row, and every rest of a block has a code of its own.
int64_t bytes_of(int64_t columns, int64_t begin, int64_t end, bool exact, int64_t block, int bits) {
  if (exact) return begin < end ? padded(4 * (end - begin)) : 0;
  int64_t total = 0, full_rows = 0;
  const auto codes = [&](int64_t rows, int64_t width) {
    if (rows * width == 0) return int64_t{0};
    return padded(4 * rows * ((width + block - 1) / block)) +
           padded(rows * ((width * bits + 7) / 8));
  };
  for (int64_t row = begin / columns * columns; row < end; row += columns) {
    if (row >= begin && row + columns <= end) {
      ++full_rows;
      continue;
    }
    int64_t width = 0;
    for (int64_t at = row; at < row + columns; at += block) {
      const int64_t stop = std::min(at + block, row + columns);
      const int64_t stored = std::min(stop, end) - std::max(at, begin);
      if (stored == stop - at)
        width += stored;
      else if (stored > 0)
        total += padded(4 * stored);
    }
    total += codes(1, width);
  }
  return total + codes(full_rows, columns);
}

TEST(QuantizedTileCode, MessagesHaveTheBytesOfTheFormula) {
  Ctx ctx(1, "test");
  for (const int bits : {8, 4})
    for (const int ranks : {1, 2, 3, 5, 16, 61}) {
      WeightCompressionConfig config = kEightBits;
      config.bits = bits;
      const auto store = filled_store(ctx, DType::kF32, {ranks, 0});
      for (const Tile& tile : store->tiles()) {
        int64_t longest = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Piece piece = piece_of(tile.range.size(), ranks, rank);
          int64_t bytes = 0;
          for (ParamHandle h = 0; h < std::ssize(store->specs()); ++h) {
            const FlatRange range = store->range(h);
            if (range.begin < tile.range.begin || range.end > tile.range.end) continue;
            const int64_t begin = std::max(range.begin, tile.range.begin + piece.begin);
            const int64_t end = std::min(range.end, tile.range.begin + piece.end);
            const Shape& shape = store->specs()[static_cast<size_t>(h)].shape;
            if (begin < end)
              bytes += bytes_of(shape[shape.rank() - 1], begin - range.begin, end - range.begin,
                                is_sent_exactly(shape, config), 8, bits);
          }
          longest = std::max(longest, bytes);
        }
        EXPECT_EQ(QuantizedTileCode(*store, tile, config).message_bytes(), longest)
            << ranks << " ranks, " << bits << " bits";
      }
    }
}

// A matrix without padding on ranks that divide it between rows: 8 bits and a scale per block.
TEST(QuantizedTileCode, ShardsOfWholeRowsSendCodesOnly) {
  ParameterList list;
  list.add(random_matrix("w", Shape{64, 512}, 0));
  const ParameterStore store(list, DType::kF32, {3, {4, 1}, {4, 1}});
  const QuantizedTileCode code(store, store.tiles()[0], {.enabled = true});
  EXPECT_EQ(code.message_bytes(), 16 * (512 + 2 * 4));
  EXPECT_EQ(code.buffer_bytes(), 4 * code.message_bytes());
}

// Codes of 8 bits with a float32 scale per row: 8 bytes for 4 columns, as many as 16-bit elements.
TEST(QuantizedTileCode, NarrowTensorsAreExactInEveryDtypeAndLayout) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64})
    for (const int64_t columns : {4, 5}) {
      ParameterList list;
      ParameterSpec half = random_matrix("lora_B", Shape{4096, columns}, 0);
      half.box = {{2048, 0}, {2048, columns}};
      list.add(half);
      const ParameterStore store(list, dtype, {3, {2, 1}, {2, 1}});
      const QuantizedTileCode code(store, store.tiles()[0], {.enabled = true, .min_bytes = 0});
      const int64_t exact = dtype_size(dtype) * columns, coded = 4 + columns;
      EXPECT_EQ(code.message_bytes(), 1024 * (columns == 4 ? exact : coded)) << columns;
    }
}

// 32 elements are 128 bytes, whatever the dtype of the weights.
TEST(QuantizedTileCode, MinBytesAreThoseOfFloat32) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64})
    for (const int64_t min_bytes : {128, 129}) {
      ParameterList list;
      list.add(random_matrix("w", Shape{2, 16}, 0));
      const ParameterStore store(list, dtype, {3, {1, 0}, {1, 0}});
      const QuantizedTileCode code(store, store.tiles()[0],
                                   {.enabled = true, .block = 16, .min_bytes = min_bytes});
      EXPECT_EQ(code.message_bytes(), min_bytes == 128 ? 2 * (16 + 4) : 32 * dtype_size(dtype));
    }
}

TEST(QuantizedTileCode, RefusesBoxesThatCutBlocks) {
  ParameterList list;
  ParameterSpec half = random_matrix("w", Shape{64, 24}, 0);
  half.box = {{0, 12}, {64, 12}};
  list.add(half);
  const ParameterStore store(list, DType::kF32, {3, {2, 0}, {2, 0}});
  EXPECT_THROW(QuantizedTileCode(store, store.tiles()[0], kEightBits), InputError);
}

}  // namespace
}  // namespace trireme::test::test_quantized_tile_code
