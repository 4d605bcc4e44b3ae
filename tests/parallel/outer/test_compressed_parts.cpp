#include <gtest/gtest.h>

#include <map>

#include "parallel/outer/compressed_parts.h"
#include "parallel/outer/compressors/compressors.h"
#include "tests/support/compare.h"

namespace trireme::test::test_compressed_parts {
namespace {

ParameterSpec spec(const Shape& shape, std::vector<int64_t> start = {},
                   std::vector<int64_t> extent = {}) {
  ParameterSpec spec;
  spec.name = "w";
  spec.shape = shape;
  spec.box = {std::move(start), std::move(extent)};
  return spec;
}

const auto kTopK = make_compressor({.method = "top_k", .block = 4});
const auto kPowerSgd = make_compressor({.method = "powersgd"});

// Number of the logical tensor's block that holds each element of the box, by its index in the
// flattened logical tensor.
std::map<int64_t, int64_t> blocks_of(const ParameterSpec& s) {
  constexpr int64_t kOffset = 100;
  std::map<int64_t, int64_t> blocks;
  int64_t at = kOffset;
  for (const CompressedPart& part : compressed_parts(s, kOffset, *kTopK, 7)) {
    EXPECT_EQ(part.offset, at);
    EXPECT_EQ(part.key.seed, 7u);
    EXPECT_EQ(part.key.stream, stream_id("w"));
    for (int64_t r = 0; r < part.rows; ++r)
      for (int64_t c = 0; c < part.columns; ++c, ++at)
        blocks[s.element_index().of(at - kOffset)] =
            part.key.first_block + r * part.key.block_stride + c / 4;
  }
  EXPECT_EQ(at, kOffset + s.local_shape().numel());
  return blocks;
}

// Boxes that together are the tensor have its blocks.
void expect_same_blocks(const Shape& shape, const std::vector<ParameterSpec>& boxes) {
  std::map<int64_t, int64_t> all;
  for (const ParameterSpec& box : boxes) all.merge(blocks_of(box));
  EXPECT_EQ(all, blocks_of(spec(shape)));
  EXPECT_EQ(std::ssize(all), shape.numel());
}

TEST(CompressedParts, BoxesHaveTheBlocksOfTheTensor) {
  expect_same_blocks({6, 10}, {spec({6, 10}, {0, 0}, {2, 10}), spec({6, 10}, {2, 0}, {4, 10})});
  expect_same_blocks({6, 10}, {spec({6, 10}, {0, 0}, {6, 4}), spec({6, 10}, {0, 4}, {6, 4}),
                               spec({6, 10}, {0, 8}, {6, 2})});
  expect_same_blocks({4, 8}, {spec({4, 8}, {0, 0}, {2, 8}), spec({4, 8}, {2, 0}, {2, 4}),
                              spec({4, 8}, {2, 4}, {2, 4})});
  expect_same_blocks({22}, {spec({22}, {0}, {12}), spec({22}, {12}, {10})});
  expect_same_blocks(
      {3, 4, 6}, {spec({3, 4, 6}, {0, 0, 0}, {3, 1, 6}), spec({3, 4, 6}, {0, 1, 0}, {3, 3, 6})});
  expect_same_blocks(
      {3, 2, 8}, {spec({3, 2, 8}, {0, 0, 0}, {3, 2, 4}), spec({3, 2, 8}, {0, 0, 4}, {3, 2, 4})});
}

std::string refusal(const ParameterSpec& s, const Compressor& compressor) {
  try {
    (void)compressed_parts(s, 0, compressor, 0);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(CompressedParts, RefusesBoxesThatCutBlocks) {
  EXPECT_EQ(refusal(spec({6, 12}, {0, 6}, {6, 6}), *kTopK),
            "w (6, 12) is divided into parts of 6 columns, which cuts blocks of 4: use a block "
            "that divides 6");
  EXPECT_NE(refusal(spec({6, 12}, {0, 0}, {6, 6}), *kTopK), "");
  EXPECT_EQ(refusal(spec({6, 12}, {0, 8}, {6, 4}), *kTopK), "");
}

TEST(CompressedParts, WholeMatricesCannotBeDivided) {
  EXPECT_EQ(refusal(spec({6, 12}, {3, 0}, {3, 12}), *kPowerSgd),
            "w (6, 12) is divided into parts of (3, 12), which this method cannot encode: use "
            "another method, or do not divide it");
  const std::vector<CompressedPart> parts =
      compressed_parts(spec({2, 6, 12}, {0, 0, 0}, {2, 6, 12}), 5, *kPowerSgd, 0);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].rows, 12);
  EXPECT_EQ(parts[0].columns, 12);
  EXPECT_EQ(parts[0].offset, 5);
}

TEST(CompressedParts, ExactPartsAreOneRow) {
  const CompressedPart part = exact_part(spec({6, 10}, {2, 0}, {4, 10}), 64);
  EXPECT_TRUE(part.exact);
  EXPECT_EQ(part.range().begin, 64);
  EXPECT_EQ(part.range().end, 104);
  EXPECT_EQ(&compressor_of(part, *kTopK) == kTopK.get(), false);
}

}  // namespace
}  // namespace trireme::test::test_compressed_parts
