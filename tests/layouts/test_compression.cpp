// Compressed gradients: the numbers depend on the number of model replicas, dp, and not on how a
// replica divides its work (docs/design/outer.md).
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "optim/onebit_adam.h"
#include "tests/layouts/resumed_run.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test::test_compression {
namespace {

std::vector<CompressionOptions> dividing_methods() {
  return {{.bits = 8, .block = 8},
          {.bits = 1, .block = 8},
          {.method = "top_k", .ratio = 0.25, .block = 8},
          {.method = "random_k", .ratio = 0.25, .block = 8}};
}

// The same replicas, each on one rank.
LayoutCase one_rank_each(const LayoutCase& c) {
  LayoutCase reference = reference_of(c);
  reference.sizes.dp = c.sizes.dp;
  return reference;
}

std::vector<LayoutCase> layouts() {
  LayoutCase interleaved = layout(2, 1, 2, 1), zero_bubble = layout(2, 2, 2, 1);
  interleaved.schedule = "interleaved_1f1b";
  interleaved.virtual_stages = 2;
  zero_bubble.schedule = "zb_h1";
  LayoutCase heads = layout(2, 1, 1, 2), outermost = layout(2, 2, 1, 2);
  heads.sizes.cp_ulysses = 2;
  outermost.sizes.order = "dp-cp-tp-pp";
  LayoutCase recomputed = layout(2, 2, 1, 1);
  recomputed.recompute = Recompute::kFull;
  return {layout(2, 2, 1, 1),
          layout(2, 4, 1, 1, 0, true),
          layout(2, 1, 2, 1),
          layout(2, 1, 4, 1),
          layout(2, 1, 1, 2),
          layout(2, 1, 1, 4),
          heads,
          layout(2, 2, 1, 2, 0, true),
          layout(2, 1, 2, 2),
          layout(4, 2, 1, 1, 0, true),
          interleaved,
          zero_bubble,
          outermost,
          recomputed,
          layout(2, 1, 1, 2, 1),
          layout(2, 1, 2, 1, 1)};
}

LayoutResult run(const LayoutCase& c, bool compressed = true) {
  RunConfig config = config_of(c);
  config.train_steps = 3;  // with residuals of two
  config.compression.enabled = compressed;
  return run_training(config, c.packed, {});
}

void expect_as_one_rank_each(LayoutCase c, const CompressionOptions& options) {
  c.compression = {compression(options)};
  const LayoutResult got = run(c), want = run(one_rank_each(c));
  EXPECT_EQ(layout_difference(got, want, c.dtype), "")
      << c.name() << ", " << options.method << " " << options.bits;
}

// The result of a method that leaves nothing out is that of exact sums.
void expect_exact(LayoutCase c, const CompressionOptions& options) {
  c.compression = {compression(options)};
  EXPECT_EQ(layout_difference(run(c), run(c, false), c.dtype), "")
      << c.name() << ", " << options.method;
}

TEST(Compression, DoesNotDependOnTheLayoutOfAReplica) {
  size_t method = 0;
  for (const LayoutCase& c : layouts())
    for (const bool llama : {true, false}) {  // GPT-2: tied table on two stages, biases
      LayoutCase of_model = c;
      of_model.llama = llama;
      expect_as_one_rank_each(of_model, dividing_methods()[method++ % dividing_methods().size()]);
    }
}

TEST(Compression, DoesNotDependOnHowAReplicaDividesExperts) {
  LayoutCase c = layout(2, 2, 1, 1, 0, true);
  c.experts = "mixtral";
  expect_as_one_rank_each(c, dividing_methods()[0]);
  c.sizes.etp = 2;
  expect_as_one_rank_each(c, dividing_methods()[3]);
}

// A tied table has the same bits on both stages, also where the sum over the ranks of a replica
// depends on places in the flat range.
TEST(Compression, TiedTablesStayEqual) {
  LayoutCase c = layout(2, 1, 2, 4);
  c.llama = false;
  c.dtype = DType::kF32;
  c.compression = {compression({.bits = 1, .block = 8})};
  LayoutRunOptions ring;
  ring.comm.algorithm = CommAlgorithm::kRing;
  EXPECT_EQ(run_training(config_of(c), false, ring).replica, "");
}

TEST(Compression, AdaptersAreCompressed) {
  LayoutCase c = layout(2, 2, 1, 2);
  c.compression = {compression({.bits = 1, .block = 8})};
  c.compression.min_bytes = 0;
  const auto run_adapters = [&](const LayoutCase& of) {
    RunConfig config = config_of(of);
    config.train_steps = 3;
    config.finetune.lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
    config.optimizer.lr = 0.05;  // the first step gives B values, and thereby A gradients
    return run_training(config, false, {});
  };
  EXPECT_EQ(layout_difference(run_adapters(c), run_adapters(one_rank_each(c)), c.dtype), "");
}

// Experts over both replicas are on one rank each: their gradients have no sum to compress.
TEST(Compression, LeavesExpertsOfOneRankExact) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.experts = "mixtral";
  c.sizes.ep = 2;
  expect_exact(c, {.method = "top_k", .ratio = 1.0, .block = 8});
  c.sizes.tp = c.sizes.etp = 2;
  expect_exact(c, {.method = "top_k", .ratio = 1.0, .block = 8});
}

LayoutResult run_on_nodes(const LayoutCase& c, int ranks_per_node) {
  LayoutRunOptions options;
  options.comm.ranks_per_node = ranks_per_node;
  return run_training(config_of(c), c.packed, options);
}

// Between nodes the numbers depend on the replicas of each node only.
TEST(Compression, NodesAreSites) {
  LayoutCase c = layout(4, 1, 1, 1), divided = layout(4, 1, 1, 2), stages = layout(4, 1, 2, 1);
  stages.sizes.order = "tp-cp-pp-dp";  // whole replicas on each node
  c.compression = {compression({.bits = 1, .block = 8})};
  const LayoutResult replicas = run_on_nodes(c, 2);
  c.compression.scope = CompressionScope::kNodes;
  divided.compression = stages.compression = c.compression;
  const LayoutResult nodes = run_on_nodes(c, 2);
  EXPECT_NE(layout_difference(nodes, replicas, c.dtype), "");
  EXPECT_EQ(layout_difference(run_on_nodes(divided, 4), nodes, c.dtype), "");
  EXPECT_EQ(layout_difference(run_on_nodes(stages, 4), nodes, c.dtype), "");
  RunConfig plain = config_of(c);
  plain.compression.enabled = false;
  EXPECT_EQ(layout_difference(run_on_nodes(c, 4), run_training(plain, false, {}), c.dtype), "");
}

// 1-bit Adam whose second moment is frozen after the first of three steps.
RunConfig moments_config(LayoutCase c, const CompressionOptions& options, double clip,
                         bool compressed = true) {
  c.compression = {compression(options)};
  c.compression.warmup_steps = 1;
  RunConfig config = config_of(c);
  config.train_steps = 3;
  config.gradient_clipping = clip;
  config.compression.enabled = compressed;
  OneBitAdam rule;
  rule.freeze_step = 1;
  rule.eps = 1e-4;
  config.compression.moment_beta = rule.betas.first;
  config.optimizer.rule = rule.clone();
  return config;
}

LayoutResult run_moments(const LayoutCase& c, const CompressionOptions& options, double clip,
                         bool compressed = true) {
  return run_training(moments_config(c, options, clip, compressed), c.packed, {});
}

TEST(Compression, MomentsDoNotDependOnTheLayoutOfAReplica) {
  const CompressionOptions options{.bits = 1, .block = 8};
  for (const LayoutCase& c :
       {layout(2, 2, 1, 1), layout(2, 1, 2, 1), layout(2, 1, 1, 2), layout(4, 2, 1, 1, 0, true)})
    for (const double clip : {0.0, 0.1}) {
      LayoutCase of_gpt2 = c;
      of_gpt2.llama = false;
      EXPECT_EQ(layout_difference(run_moments(of_gpt2, options, clip),
                                  run_moments(one_rank_each(of_gpt2), options, clip), c.dtype),
                "")
          << c.name() << ", clip " << clip;
    }
}

// Without loss it is AdamW with a frozen second moment, clipped by another norm.
TEST(Compression, MomentsAreExactWhereNothingIsLeftOut) {
  const LayoutCase c = layout(2, 1, 1, 2);
  const CompressionOptions all{.method = "top_k", .ratio = 1.0, .block = 8};
  const LayoutResult exact = run_moments(c, all, 0, false);
  EXPECT_EQ(layout_difference(run_moments(c, all, 0), exact, c.dtype), "");
  EXPECT_NE(layout_difference(run_moments(c, all, 0.1), exact, c.dtype), "");
  EXPECT_NE(layout_difference(run_moments(c, {.bits = 1, .block = 8}, 0), exact, c.dtype), "");
}

// With 1 bit the new moment has one magnitude in each block: nothing else is added to it.
TEST(Compression, MomentsAreWhatIsDecoded) {
  const RunConfig config = moments_config(layout(2, 1, 1, 1), {.bits = 1, .block = 8}, 0.1);
  on_ranks(config, {}, [&](LayoutRank& rank) {
    for (int64_t step = 0; step < 3; ++step) rank.train(step, false);
    const ParameterStore& store = rank.state.store;
    const std::vector<double> moment = to_doubles(rank.state.optimizer.first_moment());
    for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
      const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
      if (spec.name != "model.layers.3.mlp.up_proj.weight") continue;
      const auto* const first = moment.data() + store.range(h).begin;
      for (int64_t i = 0; i < spec.shape.numel(); ++i)
        ASSERT_NEAR(std::abs(first[i]), std::abs(first[i - i % 8]), 1e-15) << i;
    }
  });
}

// Replicas with the same gradients are clipped as their mean is.
TEST(Compression, MomentsAreClippedByTheNormOfReplicas) {
  const CompressionOptions all{.method = "top_k", .ratio = 1.0, .block = 8};
  const auto trained = [&](bool compressed) {
    std::vector<double> values;
    on_ranks(moments_config(layout(2, 1, 1, 1), all, 0.01, compressed), {}, [&](LayoutRank& rank) {
      for (int64_t step = 0; step < 3; ++step) {
        int& replica = rank.groups.layout.dp.index;
        const int own = std::exchange(replica, 0);
        const std::vector<MicroBatch> same = rank.batches(step, false);
        replica = own;
        rank.step.run(step, same, rank.plan);
      }
      if (rank.world.rank() == 0) values = to_doubles(rank.state.store.flat_values());
    });
    return values;
  };
  const std::vector<double> exact = trained(false), got = trained(true);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(got[i], exact[i], 1e-9) << i;
}

// Finite gradients that are too large to encode are clipped as in other steps.
TEST(Compression, MomentsThatCannotBeSentAreClipped) {
  const RunConfig config = moments_config(layout(2, 1, 1, 1), {.bits = 1, .block = 8}, 1);
  on_ranks(config, {}, [](LayoutRank& rank) {
    rank.train(0, false);
    ParameterStore& store = rank.state.store;
    for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
      if (store.specs()[static_cast<size_t>(h)].name == "lm_head.weight")
        for (double& value : std::span(store.value(h).as<double>(), 61 * 32)) value *= 1e20;
    const StepResult result = rank.train(1, false);
    EXPECT_FALSE(result.skipped);
    EXPECT_GT(result.grad_norm, 1e15);
    for (const double m : to_doubles(rank.state.optimizer.first_moment()))
      ASSERT_LT(std::abs(m), 1);
  });
}

TEST(Compression, LeavesOneReplicaExact) {
  LayoutCase c = layout(1, 2, 1, 2);
  c.compression = {compression({.bits = 1, .block = 8})};
  EXPECT_EQ(layout_difference(run(c), run(c, false), c.dtype), "");
}

TEST(Compression, WholeMatricesDoNotDependOnStagesAndContext) {
  for (const LayoutCase& c : {layout(2, 1, 2, 1), layout(2, 1, 1, 2), layout(2, 1, 2, 2)}) {
    LayoutCase of_gpt2 = c;
    of_gpt2.llama = false;
    expect_as_one_rank_each(c, {.method = "powersgd", .rank = 2});
    expect_as_one_rank_each(of_gpt2, {.method = "powersgd", .rank = 2});
  }
}

// The comparison above would see another result: another number of replicas, or no feedback.
TEST(Compression, DependsOnTheNumberOfReplicas) {
  LayoutCase two = layout(2, 1, 1, 1);
  two.compression = {compression({.bits = 1, .block = 8})};
  LayoutCase four = two, without = two;
  four.sizes.dp = 4;
  without.compression.error_feedback = false;
  const LayoutResult of_two = run(two);
  EXPECT_NE(layout_difference(run(four), of_two, two.dtype), "");
  EXPECT_NE(layout_difference(run(without), of_two, two.dtype), "");
}

TEST(Compression, IsExactWhereNothingIsLeftOut) {
  for (const CompressionOptions& options :
       {CompressionOptions{.method = "top_k", .ratio = 1.0, .block = 8},
        CompressionOptions{.method = "random_k", .ratio = 1.0, .block = 8},
        CompressionOptions{.method = "powersgd", .rank = 64}})
    for (const LayoutCase& c : {layout(4, 1, 1, 1), layout(2, 1, 2, 2)}) expect_exact(c, options);
}

TEST(Compression, BeginsAfterTheWarmUp) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.compression = {compression({.bits = 1, .block = 8})};
  c.compression.warmup_steps = 2;
  const LayoutResult warm = run(c), exact = run(c, false);
  for (size_t step = 0; step < 3; ++step)
    EXPECT_EQ(warm.norms[step] == exact.norms[step], step < 2) << step;
}

// Loads into the same layout bit for bit, and into another layout of the replicas within rounding.
TEST(Compression, ResumesInAnyLayoutOfTheReplicas) {
  std::vector<CompressionOptions> methods = dividing_methods();
  methods.push_back({.method = "powersgd", .rank = 2});
  for (const CompressionOptions& options : methods) {
    LayoutCase c = layout(2, 1, 2, 1);
    c.llama = false;
    c.compression = {compression(options)};
    const ScratchDirectory scratch;
    const RunPart straight = run_part(c, 0, 4, "", "");
    run_part(c, 0, 2, "", scratch.path());
    const RunPart resumed = run_part(c, 2, 4, scratch.path(), "");
    EXPECT_TRUE(resumed.tensors == straight.tensors) << options.method;
    LayoutCase other = layout(2, 1, 1, 2);
    other.llama = false;
    other.compression = c.compression;
    const RunPart moved = run_part(other, 2, 4, scratch.path(), "");
    for (size_t step = 0; step < 2; ++step)
      EXPECT_NEAR(moved.losses[step], straight.losses[2 + step], 1e-9) << options.method;
    EXPECT_EQ(moved.replica, "") << options.method;
  }
}

// Sum over all ranks of both residuals of every parameter.
std::map<std::string, std::vector<double>> residual_sums(const LayoutCase& c,
                                                         const std::string& checkpoint) {
  std::map<std::string, std::vector<double>> sums;
  std::mutex mutex;
  on_ranks(config_of(c), {}, [&](LayoutRank& rank) {
    load_train_checkpoint(rank.ctx, CheckpointReader(find_checkpoint(checkpoint).directory),
                          rank.state);
    const ParameterStore& store = rank.state.store;
    const CompressionState& state = rank.state.compression->region(Region::kDense)->state;
    const auto add = [&](const Tensor& residual, const ShardMap& map) {
      const std::vector<double> values = to_doubles(residual);
      for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
        const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
        if (spec.copy != 0) continue;
        std::vector<double>& sum = sums[spec.name];
        sum.resize(static_cast<size_t>(spec.shape.numel()));
        map.for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
          for (int64_t i = 0; i < part.size(); ++i)
            sum[static_cast<size_t>(spec.element_index().of(
                part.begin - store.range(h).begin + i))] += values[static_cast<size_t>(at + i)];
        });
      }
    };
    const std::lock_guard lock(mutex);
    add(state.residual(), state.residual_map());
    add(state.sum_residual(), state.sum_residual_map());
  });
  return sums;
}

TEST(Compression, OtherNumbersOfReplicasLoseNoResidual) {
  LayoutCase c = layout(2, 2, 1, 1);
  c.compression = {compression({.bits = 1, .block = 8})};
  const ScratchDirectory scratch;
  run_part(c, 0, 2, "", scratch.path());
  const auto want = residual_sums(c, scratch.path());
  for (LayoutCase other : {layout(4, 1, 1, 1), layout(4, 1, 2, 1), layout(2, 1, 1, 4)}) {
    other.compression = c.compression;
    const auto got = residual_sums(other, scratch.path());
    for (const auto& [name, sums] : want)
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], sums[i], 1e-12) << other.name() << " " << name;
  }
}

// A step whose gradients are not finite on one rank is skipped by all, and changes no residual.
void expect_no_change_in_skipped_steps(LayoutCase c) {
  c.compression = {compression({.bits = 1, .block = 8})};
  on_ranks(config_of(c), {}, [&](LayoutRank& rank) {
    const CompressionState& state = rank.state.compression->region(Region::kDense)->state;
    rank.train(0, false);
    const std::vector<double> before = to_doubles(state.residual());
    const std::vector<double> of_sums = to_doubles(state.sum_residual());
    double& weight = rank.state.store.flat_values().as<double>()[0];
    const double kept = weight;
    if (rank.groups.world.rank() == 1) weight = std::numeric_limits<double>::quiet_NaN();
    const StepResult bad = rank.train(1, false);
    EXPECT_TRUE(bad.skipped);
    EXPECT_NE(bad.first_bad, "");
    EXPECT_EQ(to_doubles(state.residual()), before);
    EXPECT_EQ(to_doubles(state.sum_residual()), of_sums);
    weight = kept;
    EXPECT_FALSE(rank.train(2, false).skipped);
    EXPECT_NE(to_doubles(state.residual()), before);
  });
}

TEST(Compression, SkippedStepsChangeNoResidual) {
  LayoutCase c = layout(2, 1, 1, 2);
  for (const int zero : {0, 1}) {
    c.zero = zero;
    expect_no_change_in_skipped_steps(c);
  }
}

}  // namespace
}  // namespace trireme::test::test_compression
