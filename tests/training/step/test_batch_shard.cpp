#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/ops/loss/cross_entropy.h"
#include "training/step/batch_shard.h"
#include "training/step/train_step.h"

namespace trireme::test_batch_shard {
namespace {

// Two sequences of nine tokens in five documents; every fourth target is masked.
MicroBatch batch() {
  MicroBatch b = shape_of_micro_batch(2, 9);
  std::iota(b.tokens.begin(), b.tokens.end(), 100);
  std::iota(b.global_index.begin(), b.global_index.end(), 70);
  b.cu_seqlens = {0, 4, 5, 9, 11, 18};
  for (size_t i = 0; i < b.tokens.size(); ++i) {
    b.targets[i] = i % 4 == 0 ? kIgnoredTarget : b.tokens[i] + 1;
    b.positions[i] = static_cast<int32_t>(i % 9);
    b.valid_targets += b.targets[i] >= 0 ? 1 : 0;
  }
  return b;
}

Layout layout(int cp, int cp_index, int tp, bool sequence_parallel) {
  ParallelSizes sizes;
  sizes.cp = cp;
  sizes.tp = tp;
  sizes.sequence_parallel = sequence_parallel;
  return layout_of(sizes, cp_index * tp);
}

TEST(BatchShard, OfOneRankIsTheBatch) {
  EXPECT_TRUE(is_batch_shard_whole(2, 9, layout(1, 0, 1, false)));
  EXPECT_TRUE(is_batch_shard_whole(2, 9, layout(1, 0, 2, true)));
  EXPECT_FALSE(is_batch_shard_whole(2, 9, layout(1, 0, 4, true)));
  EXPECT_FALSE(is_batch_shard_whole(2, 8, layout(2, 0, 1, false)));
}

TEST(BatchShard, SequenceParallelismPads) {
  const Layout four = layout(1, 0, 4, true);
  MicroBatch local;
  fill_batch_shard(batch(), 9, four, {}, local);
  EXPECT_EQ(std::ssize(local.tokens), local_tokens(2, 9, four));
  EXPECT_EQ(local.tokens.size(), 20u);
  EXPECT_EQ(local.targets[19], kIgnoredTarget);
  EXPECT_EQ(local.cu_seqlens.back(), 20);
  EXPECT_EQ(local.context, nullptr);
}

TEST(BatchShard, ContextRanksHoldEveryTokenOnce) {
  ModelConfig model;
  model.windows = {3};
  model.attention_chunk = 4;
  const MicroBatch whole = batch();
  for (const int tp : {1, 3}) {
    std::vector<int64_t> rows;
    int64_t valid = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Layout mine = layout(4, rank, tp, tp > 1);
      MicroBatch local;
      // A second fill must not depend on the first.
      fill_batch_shard(shape_of_micro_batch(2, 9), 9, mine, model, local);
      fill_batch_shard(whole, 9, mine, model, local);
      EXPECT_EQ(std::ssize(local.tokens), local_tokens(2, 9, mine));
      EXPECT_EQ(local_tokens(2, 9, mine) % tp, 0);
      ASSERT_NE(local.context, nullptr);
      EXPECT_EQ(local.context->local_tokens(), std::ssize(local.tokens));
      valid += local.valid_targets;
      for (size_t i = 0; i < local.tokens.size(); ++i) {
        if (local.global_index[i] < 0) {
          EXPECT_EQ(local.targets[i], kIgnoredTarget);
          EXPECT_EQ(local.tokens[i], 0);
          continue;
        }
        const auto at = static_cast<size_t>(local.global_index[i] - 70);
        EXPECT_EQ(local.tokens[i], whole.tokens[at]);
        EXPECT_EQ(local.targets[i], whole.targets[at]);
        EXPECT_EQ(local.positions[i], whole.positions[at]);
        rows.push_back(local.global_index[i]);
      }
    }
    std::ranges::sort(rows);
    EXPECT_EQ(rows, whole.global_index);
    EXPECT_EQ(valid, whole.valid_targets);
  }
}

}  // namespace
}  // namespace trireme::test_batch_shard
