// Memory and traffic of ZeRO's stages: the formulas of docs/design/zero.md, exactly.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tests/layouts/layout_run.h"

namespace trireme::test::test_zero {
namespace {

RunConfig config_for(int dp, int stage, int micro_batches, int tp = 1) {
  LayoutCase c;
  c.sizes.dp = dp;
  c.sizes.tp = tp;
  c.zero = stage;
  c.dtype = DType::kF32;
  RunConfig config = config_of(c);
  config.gradient_accumulation_steps = micro_batches;
  config.train_batch_size = dp * micro_batches;
  config.train_steps = 1;
  return config;
}

LayoutRunOptions ring() {
  LayoutRunOptions options;
  options.comm.algorithm = CommAlgorithm::kRing;
  return options;
}

// Elements of each block of rank `rank`, with padding: every matrix or fused group of matrices
// starts at a multiple of 64 elements, and so does the next block.
std::vector<int64_t> block_sizes(const RunConfig& config, int rank) {
  const Layout layout = layout_of(config.parallel, rank);
  const Model model(
      config.model, config.dtype, layout,
      chunks_of(split_layers(config.model.num_layers, layout.pp.size, {}), layout.pp));
  std::vector<int64_t> sizes;
  int64_t group = 0;  // elements of the matrices fused so far
  int block = -1;
  const auto close = [&] {
    if (block >= 0) sizes.back() += round_up(group, 64);
    group = 0;
  };
  for (const ParameterSpec& spec : model.parameters().specs()) {
    if (!spec.fused_with_previous || spec.block != block) close();
    if (spec.block != block) sizes.push_back(0);
    block = spec.block;
    group += spec.local_shape().numel();
  }
  close();
  return sizes;
}

int64_t sum(const std::vector<int64_t>& v) {
  int64_t total = 0;
  for (const int64_t x : v) total += x;
  return total;
}

TEST(Zero, EachStageStoresItsShard) {
  for (const int tp : {1, 2})
    for (const int dp : {2, 3, 4})
      for (int stage = 0; stage <= 3; ++stage) {
        const RunConfig config = config_for(dp, stage, 1, tp);
        const LayoutResult got = run_training(config, false, {});
        ASSERT_EQ(std::ssize(got.stored), tp * dp);
        for (int rank = 0; rank < tp * dp; ++rank) {
          const int64_t i = layout_of(config.parallel, rank).data.index;
          int64_t whole = 0, shard = 0;
          for (const int64_t block : block_sizes(config, rank)) {
            whole += block;
            // Rank i of dp owns [block i / dp, block (i + 1) / dp) of every block, rounded down.
            shard += block * (i + 1) / dp - block * i / dp;
          }
          const LayoutResult::Stored& stored = got.stored[static_cast<size_t>(rank)];
          const std::string where = concat("tp ", tp, " dp ", dp, " stage ", stage, " rank ", rank);
          EXPECT_EQ(stored.values, 4 * (stage >= 3 ? shard : whole)) << where;
          EXPECT_EQ(stored.gradients, 4 * (stage >= 2 ? shard : whole)) << where;
          EXPECT_EQ(stored.states, 2 * 4 * (stage >= 1 ? shard : whole)) << where;
        }
      }
}

// All in float32: 16 bytes per element at stage 0, 8 + 8 / N, 4 + 12 / N, 16 / N.
TEST(Zero, StageThreeOnEightRanksIsAnEighth) {
  const auto bytes = [](int stage) {
    const LayoutResult::Stored s = run_training(config_for(8, stage, 1), false, {}).stored[0];
    return s.values + s.gradients + s.states;
  };
  const int64_t whole = bytes(0);
  EXPECT_EQ(bytes(1) * 16, whole * 9);
  EXPECT_EQ(bytes(2) * 32, whole * 11);
  EXPECT_EQ(bytes(3) * 8, whole);
}

TEST(Zero, TrafficIsTheFormula) {
  for (const int n : {2, 3, 4})
    for (const int m : {1, 4})
      for (int stage = 0; stage <= 3; ++stage) {
        const RunConfig config = config_for(n, stage, m);
        const Traffic got = run_training(config, false, ring()).data_traffic;
        const std::vector<int64_t> blocks = block_sizes(config, 0);  // embedding, layers, head
        const int64_t model = sum(blocks) * 4;                       // of values, and of gradients
        const int64_t once = (blocks.front() + blocks.back()) * 4;  // gathered once per micro-batch
        const int64_t all_reduce = stage == 0 ? 2 * model : 0;
        const int64_t reduce_scatter = stage == 0 ? 0 : stage == 1 ? model : m * model;
        const int64_t all_gather = stage == 0 ? 0 : stage == 3 ? m * (2 * model - once) : model;
        const std::string where = concat("N ", n, " m ", m, " stage ", stage);
        EXPECT_EQ(got[CommKind::kAllReduce].sent_bytes, (n - 1) * all_reduce) << where;
        EXPECT_EQ(got[CommKind::kReduceScatter].sent_bytes, (n - 1) * reduce_scatter) << where;
        EXPECT_EQ(got[CommKind::kAllGather].sent_bytes, (n - 1) * all_gather) << where;
      }
}

// Full recompute needs only weights that backward gathers anyway.
TEST(Zero, RecomputeGathersNothingMore) {
  RunConfig config = config_for(2, 3, 1);
  const int64_t without = run_training(config, false, ring()).data_traffic.total().sent_bytes;
  config.recompute = Recompute::kFull;
  EXPECT_EQ(run_training(config, false, ring()).data_traffic.total().sent_bytes, without);
}

TEST(Zero, PrefetchAndOverlapDoNotChangeABit) {
  RunConfig config = config_for(4, 3, 2);
  config.train_steps = 3;
  const LayoutResult one = run_training(config, false, {});
  config.zero.prefetch = config.comm.overlap = false;
  const LayoutResult other = run_training(config, false, {});
  EXPECT_TRUE(one.parameters == other.parameters);
  EXPECT_EQ(one.norms, other.norms);
  config.zero.stage = 2;  // the same reductions
  EXPECT_TRUE(run_training(config, false, {}).parameters == one.parameters);
}

// Fault: groups in which no reduction and no gather happens.
TEST(Zero, ADroppedReduceScatterIsNoticed) {
  for (int stage = 1; stage <= 2; ++stage) {
    LayoutCase c;
    c.sizes.dp = 2;
    c.zero = stage;
    const LayoutResult want = run_layout(reference_of(c));
    EXPECT_EQ(layout_difference(run_layout(c), want, {}), "");
    LayoutRunOptions alone;
    alone.change = [](Groups& groups) {
      groups.data = groups.world.split(groups.world.rank(), 0, "alone");
    };
    EXPECT_NE(layout_difference(run_layout(c, alone), want, {}), "") << stage;
  }
}

// A step that is not finite reports the same element on every rank, whichever rank owns it.
TEST(Zero, EveryRankNamesTheSameBadElement) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::mutex mutex;
    std::vector<std::string> names;
    on_ranks(config_for(4, stage, 1), {}, [&](LayoutRank& rank) {
      // With an infinite output matrix no gradient is finite.
      const Tensor values = rank.state.store.flat_values();
      const ParameterStore& store = rank.state.store;
      const FlatRange last = store.range(static_cast<ParamHandle>(store.specs().size()) - 1);
      store.value_map().for_each(last, [&](const FlatRange& part, int64_t at) {
        for (int64_t i = 0; i < part.size(); ++i)
          values.as<float>()[at + i] = std::numeric_limits<float>::infinity();
      });
      const StepResult result = rank.train(0, false);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(result.skipped);
      names.push_back(result.first_bad);
    });
    ASSERT_EQ(names.size(), 4u);
    for (const std::string& name : names) EXPECT_EQ(name, names[0]) << stage;
    EXPECT_TRUE(names[0].starts_with("model.")) << names[0];
  }
}

}  // namespace
}  // namespace trireme::test::test_zero
