#include <gtest/gtest.h>

#include <deque>
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
    return {.ids = std::span(ids_).first(count),
            .past = past,
            .tables = {&table_, 1},
            .table_name = name};
  }
  const ChunkTokens& write(const std::vector<StepBatch::Part>& parts, int64_t padded = 0) {
    batch_.write(ctx_, parts, rows_, padded);
    return batch_.tokens().chunks;
  }
  std::vector<int32_t> row(const ChunkTokens& chunks, int64_t i) {
    return numbers(chunks.cached.block_table.slice(0, i, i + 1));
  }

  Ctx ctx_{1, "test"};
  StepBatch batch_{
      ctx_, {.tokens = 24, .sequences = 3, .length = 40, .blocks = 30, .block_tokens = 4}, 8};
  std::vector<int32_t> ids_ = std::vector<int32_t>(24, 1);
  BlockTable table_ = {.blocks = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29}};
  std::vector<int32_t> rows_ = {0};
};

TEST_F(Chunks, OneTokenHasTheChunkThatItIsIn) {
  const ChunkTokens& chunks = write({part(7, 1), part(8, 1), part(21, 1)});
  EXPECT_EQ(numbers(chunks.cu_q), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(numbers(chunks.cached.context_lens), (std::vector<int32_t>{8, 1, 6}));
  EXPECT_EQ(row(chunks, 0), (std::vector<int32_t>{20, 21}));
  EXPECT_EQ(row(chunks, 1)[0], 22);
  EXPECT_EQ(row(chunks, 2), (std::vector<int32_t>{24, 25}));
  EXPECT_EQ(chunks.cached.max_queries, 1);
  EXPECT_EQ(chunks.cached.max_context_len, paged_context_bound(8));
}

TEST_F(Chunks, ManyTokensAreCutAtTheirEnds) {
  const ChunkTokens& chunks = write({part(5, 14), part(0, 3)}, 1);
  EXPECT_EQ(numbers(chunks.cu_q), (std::vector<int32_t>{0, 3, 11, 14, 17, 17}));
  EXPECT_EQ(numbers(chunks.cached.context_lens), (std::vector<int32_t>{8, 8, 3, 3, 0}));
  EXPECT_EQ(row(chunks, 1), (std::vector<int32_t>{22, 23}));
  EXPECT_EQ(row(chunks, 2)[0], 24);
  EXPECT_EQ(row(chunks, 3)[0], 20);
  EXPECT_EQ(chunks.cached.max_queries, 8);
}

// A row that holds another chunk of the same sequence is written again.
TEST_F(Chunks, RowsAreThoseOfTheirChunk) {
  write({part(7, 1, 5)});
  EXPECT_EQ(row(write({part(8, 1, 5)}), 0)[0], 22);
  EXPECT_EQ(row(write({part(13, 1, 5)}), 0), (std::vector<int32_t>{22, 23}));
  table_.blocks = {10, 11, 12, 13};
  EXPECT_EQ(row(write({part(13, 1, 6)}), 0), (std::vector<int32_t>{12, 13}));
}

// The most chunks that a step can have: every sequence begins at the end of one.
TEST_F(Chunks, ALargeStepFits) {
  const ChunkTokens& chunks = write({part(7, 8), part(7, 8), part(7, 8)});
  EXPECT_EQ(chunks.cached.context_lens.size(0), 6);
  EXPECT_EQ(write({part(7, 22), part(7, 1), part(7, 1)}).cached.context_lens.size(0), 6);
}

// A group of layers with a window of 6 tokens beside one without, in blocks of 4; a sequence is cut
// at multiples of 32.
class Windows : public testing::Test {
 protected:
  StepBatch::Part part(int64_t past, size_t count, uint64_t name = 1) {
    std::vector<BlockTable>& tables = tables_.emplace_back(2);
    for (int64_t at = 0; at < past + static_cast<int64_t>(count); at += 4)
      for (size_t group = 0; group < 2; ++group)
        tables[group].blocks.push_back(static_cast<int32_t>(100 * group + at / 4));
    tables[1].first = dropped_blocks(past, 6, 4);
    tables[1].blocks.erase(tables[1].blocks.begin(), tables[1].blocks.begin() + tables[1].first);
    return {
        .ids = std::span(ids_).first(count), .past = past, .tables = tables, .table_name = name};
  }
  const CachedTokens& write(const std::vector<StepBatch::Part>& parts, int64_t padded = 0) {
    batch_.write(ctx_, parts, rows_, padded);
    return batch_.tokens().cached_in(1);
  }
  std::vector<int32_t> row(const CachedTokens& cached, int64_t i, int64_t blocks) {
    return numbers(cached.block_table.slice(0, i, i + 1).slice(1, 0, blocks));
  }

  Ctx ctx_{1, "test"};
  StepLimits limits_{.tokens = 24,
                     .sequences = 3,
                     .length = 400,
                     .blocks = 300,
                     .block_tokens = 4,
                     .windows = {0, 6}};
  StepBatch batch_{ctx_, limits_};
  std::deque<std::vector<BlockTable>> tables_;
  std::vector<int32_t> ids_ = std::vector<int32_t>(24, 1);
  std::vector<int32_t> rows_ = {0};
};

TEST_F(Windows, SequencesBeginAtTheirTables) {
  const CachedTokens& cached = write({part(3, 2, 1), part(36, 1, 2), part(37, 1, 3)});
  const Tokens& tokens = batch_.tokens();
  EXPECT_EQ(numbers(tokens.cached.context_lens), (std::vector<int32_t>{5, 37, 38}));
  EXPECT_EQ(numbers(cached.context_lens), (std::vector<int32_t>{5, 37, 6}));
  EXPECT_EQ(numbers(tokens.positions), (std::vector<int32_t>{3, 4, 36, 37}));
  EXPECT_EQ(row(cached, 1, 2), (std::vector<int32_t>{100, 101}));
  EXPECT_EQ(row(cached, 2, 2), (std::vector<int32_t>{108, 109}));
  const int64_t* slots = cached.slots.as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(slots, slots + 4), (std::vector<int64_t>{403, 404, 436, 437}));
  const int64_t* all = tokens.cached.slots.as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(all, all + 4), (std::vector<int64_t>{3, 4, 36, 37}));
}

TEST_F(Windows, RowsAreWrittenAgainAfterBlocksWereDropped) {
  write({part(36, 1)});
  EXPECT_EQ(row(write({part(37, 1)}), 0, 2), (std::vector<int32_t>{108, 109}));
  EXPECT_EQ(row(write({part(38, 3)}), 0, 3), (std::vector<int32_t>{108, 109, 110}));
}

// Recorded passes depend on the bound of the longest context.
TEST_F(Windows, TheLongestContextDoesNotDependOnDroppedBlocks) {
  for (const int64_t past : {300, 310, 320, 330, 340})
    EXPECT_EQ(write({part(past, 1)}).max_context_len, paged_context_bound(6 + 32 - 2 + 1));
  EXPECT_EQ(batch_.max_context_len(), paged_context_bound(341));
}

TEST_F(Windows, TheLargestTableFits) {
  int64_t most = 0;
  for (int64_t past = 0; past + 24 <= 400; ++past) {
    tables_.clear();
    write({part(past, 24)});
    most = std::max<int64_t>(most, std::ssize(tables_[0][1].blocks));
  }
  EXPECT_EQ(most, limits_.table_blocks(1));
  EXPECT_EQ(limits_.blocks_of_sequence(), 100 + most);
}

// Two groups of layers with chunks beside one without, which keeps all tokens.
TEST(StepBatch, GroupsWithChunksKeepTheLastOnes) {
  Ctx ctx(1, "test");
  const StepLimits limits{.tokens = 24,
                          .sequences = 3,
                          .length = 400,
                          .blocks = 300,
                          .block_tokens = 4,
                          .windows = {0, -8, -8}};
  StepBatch batch(ctx, limits, 8);
  std::vector<BlockTable> tables(3);
  for (int32_t n = 0; n < 6; ++n) tables[0].blocks.push_back(n);
  for (size_t group : {1, 2}) tables[group] = {.first = 4, .blocks = {40, 41}};
  tables[2].blocks = {50, 51};
  const std::vector<int32_t> ids(4, 1), rows = {0};
  const StepBatch::Part part{.ids = ids, .past = 19, .tables = tables};
  batch.write(ctx, {&part, 1}, rows, 0);
  const Tokens& tokens = batch.tokens();
  EXPECT_EQ(numbers(tokens.cached.context_lens), (std::vector<int32_t>{23}));
  EXPECT_EQ(numbers(tokens.chunks.cu_q), (std::vector<int32_t>{0, 4}));
  for (int64_t group : {1, 2}) {
    const CachedTokens& cached = tokens.cached_in(group);
    const auto first = static_cast<int32_t>(group == 1 ? 40 : 50);
    EXPECT_EQ(numbers(cached.context_lens), (std::vector<int32_t>{7}));
    EXPECT_EQ(numbers(cached.block_table), (std::vector<int32_t>{first, first + 1}));
    const int64_t* slots = cached.slots.as<int64_t>();
    EXPECT_EQ(slots[0], 4 * first + 3);
    EXPECT_EQ(slots[1], 4 * (first + 1));
  }
  EXPECT_EQ(limits.table_blocks(1), (8 - 1 + 24 + 3) / 4);
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
