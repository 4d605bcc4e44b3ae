#include <gtest/gtest.h>

#include <numeric>

#include "engine/core/error.h"
#include "engine/ops/attention/paged_attention.h"
#include "serving/engine/step_batch.h"

namespace trireme::test_step_batch {
namespace {

std::vector<int32_t> numbers(const ConstTensor& t) {
  return {t.as<int32_t>(), t.as<int32_t>() + t.numel()};
}

// Chunks of 8 tokens, in blocks of 4.
class Chunks : public testing::Test {
 protected:
  StepBatch::Part part(int64_t past, size_t count, uint64_t name = 0) {
    return {.ids = std::span(ids_).first(count), .past = past, .table = table_, .table_name = name};
  }
  const ChunkTokens& write(const std::vector<StepBatch::Part>& parts, int64_t padded = 0) {
    batch_.write(ctx_, parts, rows_, padded);
    return batch_.tokens().chunks;
  }
  std::vector<int32_t> row(const ChunkTokens& chunks, int64_t i) {
    return numbers(chunks.block_table.slice(0, i, i + 1));
  }

  Ctx ctx_{1, "test"};
  StepBatch batch_{
      ctx_, {.tokens = 24, .sequences = 3, .length = 40, .blocks = 30, .block_tokens = 4}, 8};
  std::vector<int32_t> ids_ = std::vector<int32_t>(24, 1);
  std::vector<int32_t> table_ = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
  std::vector<int32_t> rows_ = {0};
};

TEST_F(Chunks, OneTokenHasTheChunkThatItIsIn) {
  const ChunkTokens& chunks = write({part(7, 1), part(8, 1), part(21, 1)});
  EXPECT_EQ(numbers(chunks.cu_q), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(numbers(chunks.context_lens), (std::vector<int32_t>{8, 1, 6}));
  EXPECT_EQ(row(chunks, 0), (std::vector<int32_t>{20, 21}));
  EXPECT_EQ(row(chunks, 1)[0], 22);
  EXPECT_EQ(row(chunks, 2), (std::vector<int32_t>{24, 25}));
  EXPECT_EQ(chunks.max_queries, 1);
  EXPECT_EQ(chunks.longest_context, paged_context_bound(8));
}

TEST_F(Chunks, ManyTokensAreCutAtTheirEnds) {
  const ChunkTokens& chunks = write({part(5, 14), part(0, 3)}, 1);
  EXPECT_EQ(numbers(chunks.cu_q), (std::vector<int32_t>{0, 3, 11, 14, 17, 17}));
  EXPECT_EQ(numbers(chunks.context_lens), (std::vector<int32_t>{8, 8, 3, 3, 0}));
  EXPECT_EQ(row(chunks, 1), (std::vector<int32_t>{22, 23}));
  EXPECT_EQ(row(chunks, 2)[0], 24);
  EXPECT_EQ(row(chunks, 3)[0], 20);
  EXPECT_EQ(chunks.max_queries, 8);
}

// A row that holds another chunk of the same sequence is written again.
TEST_F(Chunks, RowsAreThoseOfTheirChunk) {
  write({part(7, 1, 5)});
  EXPECT_EQ(row(write({part(8, 1, 5)}), 0)[0], 22);
  EXPECT_EQ(row(write({part(13, 1, 5)}), 0), (std::vector<int32_t>{22, 23}));
  table_ = {10, 11, 12, 13};
  EXPECT_EQ(row(write({part(13, 1, 6)}), 0), (std::vector<int32_t>{12, 13}));
}

// The most chunks that a step can have: every sequence begins at the end of one.
TEST_F(Chunks, ALargeStepFits) {
  const ChunkTokens& chunks = write({part(7, 8), part(7, 8), part(7, 8)});
  EXPECT_EQ(chunks.context_lens.size(0), 6);
  EXPECT_EQ(write({part(7, 22), part(7, 1), part(7, 1)}).context_lens.size(0), 6);
}

TEST(StepBatch, ChunksConsistOfBlocks) {
  Ctx ctx(1, "test");
  try {
    StepBatch(ctx, {.tokens = 8, .sequences = 1, .length = 40, .blocks = 9, .block_tokens = 16}, 8);
    FAIL() << "is not refused";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "attention_chunk_size 8 is not a multiple of 16, the tokens of a block of the KV "
                 "cache");
  }
}

}  // namespace
}  // namespace trireme::test_step_batch
