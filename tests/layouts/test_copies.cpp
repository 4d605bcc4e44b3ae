// Second copy of the weights of ZeRO stage 3, divided inside a node: the same bits, other bytes
// (docs/design/zero.md).
#include <gtest/gtest.h>

#include "parallel/store_block_copies.h"
#include "tests/layouts/layout_run.h"

namespace trireme::test::test_copies {
namespace {

RunConfig sharded_config(LayoutCase c) {
  c.zero = 3;
  RunConfig config = config_of(c);
  config.train_steps = 3;
  return config;
}

void expect_same_bits(const RunConfig& config, int copies, bool packed = false) {
  RunConfig with = config;
  with.zero.copy_ranks = copies;
  const LayoutResult one = run_training(config, packed, {}), other = run_training(with, packed, {});
  EXPECT_TRUE(one.parameters == other.parameters) << copies;
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.norms, other.norms);
  EXPECT_EQ(other.replica, "");
}

TEST(Copies, DoNotChangeABit) {
  expect_same_bits(sharded_config(layout(4, 1, 1, 1)), 2);
  expect_same_bits(sharded_config(layout(4, 1, 1, 1)), 4);
  expect_same_bits(sharded_config(layout(2, 2, 1, 2)), 2);
  LayoutCase stages = layout(2, 1, 2, 1);
  stages.llama = false;
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    stages.schedule = schedule;
    expect_same_bits(sharded_config(stages), 2);
  }
  LayoutCase recomputed = layout(4, 1, 1, 1);
  recomputed.recompute = Recompute::kFull;
  expect_same_bits(sharded_config(recomputed), 2);
  LayoutCase experts = layout(4, 1, 1, 1);
  experts.experts = "mixtral";
  expect_same_bits(sharded_config(experts), 2);
}

TEST(Copies, OfQuantizedWeightsAreTheDecodedOnes) {
  RunConfig config = sharded_config(layout(4, 1, 1, 1));
  config.weight_compression = {.enabled = true, .bits = 8, .block = 8, .min_bytes = 150};
  expect_same_bits(config, 2);
  config.zero.prefetch = false;
  expect_same_bits(config, 4);
}

TEST(Copies, OfAdapters) {
  RunConfig config = sharded_config(layout(4, 1, 1, 1));
  config.finetune.lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
  expect_same_bits(config, 2);
}

TEST(Copies, LargestNumberInsideANode) {
  const ParallelSizes eight = layout(8, 1, 1, 1).sizes;
  EXPECT_EQ(max_copy_ranks(eight, {0, 0, 0, 0, 0, 0, 0, 0}, false), 8);
  EXPECT_EQ(max_copy_ranks(eight, {0, 0, 0, 0, 1, 1, 1, 1}, false), 4);
  EXPECT_EQ(max_copy_ranks(eight, {0, 0, 1, 1, 1, 1, 1, 1}, false), 2);
  EXPECT_EQ(max_copy_ranks(eight, {0, 1, 0, 1, 0, 1, 0, 1}, false), 1);
  const ParallelSizes twelve = layout(12, 1, 1, 1).sizes;
  EXPECT_EQ(max_copy_ranks(twelve, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, false), 6);
  ParallelSizes divided = layout(4, 2, 1, 1).sizes;  // 2 of tensor parallelism
  const std::vector<int> halves{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(max_copy_ranks(divided, halves, false), 2);
  EXPECT_EQ(max_copy_ranks(divided, halves, true), 2);
  divided.order = "dp-cp-tp-pp";
  EXPECT_EQ(max_copy_ranks(divided, halves, false), 4);
}

// Gathers over all ranks are those of forward. Each rank stores an n-th of the layers again.
TEST(Copies, TrafficAndMemoryAreTheFormula) {
  RunConfig config = sharded_config(layout(4, 1, 1, 1));
  config.train_steps = 1;
  LayoutRunOptions ring;
  ring.comm.algorithm = CommAlgorithm::kRing;
  const LayoutResult without = run_training(config, false, ring);
  config.zero.copy_ranks = 2;
  const LayoutResult with = run_training(config, false, ring);
  int64_t layers = 0;  // bytes
  on_ranks(config, {}, [&](LayoutRank& rank) {
    int64_t bytes = 0;
    const ParameterStore& store = rank.state.store;
    for (int block = 1; block + 1 < store.blocks(); ++block)
      bytes += store.block_range(block).size() * dtype_size(store.dtype());
    EXPECT_EQ(store.copy_bytes(), bytes / 2);
    if (rank.world.rank() == 0) layers = bytes;
  });
  const int64_t saved = without.data_traffic[CommKind::kAllGather].sent_bytes -
                        with.data_traffic[CommKind::kAllGather].sent_bytes;
  EXPECT_EQ(saved, config.gradient_accumulation_steps * 3 * layers);
}

}  // namespace
}  // namespace trireme::test::test_copies
