// Sites: the numbers depend on the number of sites, and not on how a site divides its work
// (docs/design/outer.md).
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "engine/ops/loss/cross_entropy.h"
#include "tests/layouts/resumed_run.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test::test_outer {
namespace {

OuterConfig average(int64_t period) {
  OuterConfig config;
  config.sites = 2;
  config.algorithm = "average";
  config.period = period;
  config.lr = 1;
  config.momentum = 0;
  config.nesterov = false;
  return config;
}

OuterConfig diloco(int64_t period) {
  OuterConfig config;
  config.sites = 2;
  config.period = period;
  return config;
}

OuterConfig streaming(int64_t period, int64_t overlap) {
  OuterConfig config = diloco(period);
  config.algorithm = "streaming_diloco";
  config.fragments = 2;
  config.overlap_steps = overlap;
  config.mixing = overlap > 0 ? 0.5 : 0;
  return config;
}

OuterConfig adasum(int64_t period, int64_t overlap) {
  OuterConfig config = average(period);
  config.algorithm = "adasum";
  config.fragments = 2;
  config.overlap_steps = overlap;
  config.mixing = overlap > 0 ? 0.5 : 0;
  return config;
}

// Algorithms and compressors, for the layouts in turn.
std::vector<OuterConfig> exchanges() {
  std::vector<OuterConfig> all(9, diloco(2));  // rounds after steps 2, 4 and 5
  all[5] = streaming(3, 2);                    // begin after steps 1 and 3, end after 3 and 5
  all[6] = streaming(2, 1);
  all[6].compression = compression({.bits = 8, .block = 8});
  all[0] = average(2);
  all[2].compression = compression({.bits = 8, .block = 8});
  all[3].compression = compression({.method = "top_k", .ratio = 0.25, .block = 8});
  all[4].compression = compression({.method = "random_k", .ratio = 0.25, .block = 8});
  all[7] = adasum(2, 0);
  all[8] = adasum(3, 2);
  all[8].compression = compression({.bits = 8, .block = 8});
  return all;
}

LayoutCase one_rank_each(const LayoutCase& c) {
  LayoutCase reference = reference_of(c);
  reference.outer = c.outer;
  return reference;
}

std::vector<LayoutCase> layouts() {
  LayoutCase interleaved = layout(1, 1, 2, 1), zero_bubble = layout(2, 2, 2, 1);
  interleaved.schedule = "interleaved_1f1b";
  interleaved.virtual_stages = 2;
  zero_bubble.schedule = "zb_h1";
  LayoutCase outermost = layout(2, 2, 1, 2);
  outermost.sizes.order = "dp-cp-tp-pp";
  LayoutCase recomputed = layout(2, 2, 1, 1);
  recomputed.recompute = Recompute::kFull;
  return {layout(2, 1, 1, 1),
          layout(4, 1, 1, 1),
          layout(1, 2, 1, 1),
          layout(1, 4, 1, 1, 0, true),
          layout(1, 1, 4, 1),
          layout(1, 1, 1, 4),
          layout(2, 1, 1, 1, 1),
          layout(4, 1, 1, 1, 2),
          layout(4, 1, 1, 1, 3),
          layout(2, 2, 1, 1, 3, true),
          layout(2, 1, 2, 1, 1),
          layout(2, 1, 2, 1, 2),
          layout(2, 1, 1, 2, 3),
          layout(1, 2, 2, 1),
          layout(1, 1, 2, 2),
          layout(1, 2, 1, 2, 0, true),
          interleaved,
          zero_bubble,
          outermost,
          recomputed};
}

using Weights = RunPart::Tensors;

// Largest difference of an element, relative to the largest one of its tensor; infinite if a weight
// is not finite.
double largest_difference(const Weights& got, const Weights& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0;
  for (const auto& [name, values] : want)
    largest = std::max(largest, worst_relative(got.at(name), values));
  return largest;
}

LayoutResult run(const LayoutCase& c) { return run_training(config_of(c), c.packed, {}); }

void expect_as_one_rank_each(const LayoutCase& c) {
  const LayoutResult got = run(c), want = run(one_rank_each(c));
  EXPECT_EQ(layout_difference(got, want, c.dtype), "")
      << c.name() << ", " << c.outer.algorithm << " "
      << (c.outer.compression.enabled ? c.outer.compression.options.method : "exact");
}

TEST(Outer, DoesNotDependOnTheLayoutOfASite) {
  size_t exchange = 0;
  for (const LayoutCase& c : layouts())
    for (const bool llama : {true, false}) {  // GPT-2: tied table on two stages, biases
      LayoutCase of_model = c;
      of_model.llama = llama;
      of_model.outer = exchanges()[exchange++ % exchanges().size()];
      expect_as_one_rank_each(of_model);
    }
}

// A tree of four and of three updates.
TEST(Outer, AdasumDoesNotDependOnTheLayoutOfASite) {
  OuterConfig exact = adasum(2, 0), compressed = adasum(3, 1);
  exact.sites = 4;
  compressed.sites = 3;
  compressed.compression = compression({.method = "top_k", .ratio = 0.25, .block = 8});
  for (LayoutCase c : {layout(1, 4, 1, 1), layout(2, 1, 1, 1, 3), layout(1, 1, 2, 1),
                       layout(2, 1, 1, 1, 1), layout(1, 2, 1, 2, 0, true)})
    for (const OuterConfig& outer : {exact, compressed}) {
      c.outer = outer;
      expect_as_one_rank_each(c);
    }
}

TEST(Outer, DoesNotDependOnHowASiteDividesExperts) {
  LayoutCase c = layout(2, 2, 1, 1, 0, true);
  c.experts = "mixtral";
  c.sizes.ep = 2;
  for (const auto& [zero, outer] : {std::pair{0, diloco(2)},
                                    {3, exchanges()[2]},
                                    {1, exchanges()[5]},
                                    {3, exchanges()[6]},
                                    {0, exchanges()[7]},
                                    {1, exchanges()[8]}}) {
    c.zero = zero;
    c.outer = outer;
    expect_as_one_rank_each(c);
  }
}

// Master weights of bfloat16 parameters are what sites exchange.
TEST(Outer, MasterWeightsAreExchanged) {
  for (const int zero : {0, 1, 3}) {
    LayoutCase c = layout(2, 2, 1, 1, zero);
    c.dtype = DType::kBF16;
    c.outer = diloco(2);
    expect_as_one_rank_each(c);
  }
}

TEST(Outer, AdaptersAreExchanged) {
  LayoutCase c = layout(2, 2, 1, 1, 1);
  c.outer = diloco(2);
  const auto run_adapters = [](const LayoutCase& of) {
    RunConfig config = config_of(of);
    config.finetune.lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
    config.optimizer.lr = 0.05;  // the first step gives B values, and thereby A gradients
    return run_training(config, false, {});
  };
  EXPECT_EQ(layout_difference(run_adapters(c), run_adapters(one_rank_each(c)), c.dtype), "");
}

// The comparisons above would see another result.
TEST(Outer, DependsOnSitesPeriodAndAlgorithm) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer = diloco(2);
  const LayoutResult two = run(c);
  const auto differs = [&](const OuterConfig& outer) {
    LayoutCase other = c;
    other.outer = outer;
    return !layout_difference(run(other), two, c.dtype).empty();
  };
  OuterConfig four = c.outer, warm = c.outer, classical = c.outer;
  four.sites = 4;
  warm.warmup_steps = 1;
  classical.nesterov = false;
  EXPECT_TRUE(differs(four));
  EXPECT_TRUE(differs(warm));
  EXPECT_TRUE(differs(classical));
  EXPECT_TRUE(differs(diloco(3)));
  EXPECT_TRUE(differs(average(2)));
  for (const size_t exchange : {2, 3, 4, 5, 6, 7, 8}) EXPECT_TRUE(differs(exchanges()[exchange]));
}

// Five steps on batches without masked targets, so that all sites have as many.
Weights trained_without_masks(const RunConfig& config) {
  LayoutResult result;
  std::mutex mutex;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    for (int64_t s = 0; s < config.train_steps; ++s) {
      std::vector<MicroBatch> batches = rank.batches(s, false);
      for (MicroBatch& batch : batches) {
        for (size_t i = 0; i < batch.targets.size(); ++i)
          if (batch.targets[i] == kIgnoredTarget) batch.targets[i] = batch.tokens[i];
        batch.valid_targets = std::ssize(batch.targets);
      }
      rank.step.run(s, batches, rank.plan);
      if (rank.outer != nullptr) rank.outer->after_step(s + 1, config.train_steps);
    }
    const std::lock_guard lock(mutex);
    place_owned(rank.state.store, rank.state.store.flat_values(), rank.state.store.value_map(),
                result.parameters);
  });
  return result.parameters;
}

TEST(Outer, PeriodOneWithSgdIsDataParallel) {
  LayoutCase sites = layout(1, 1, 1, 1), replicas = layout(2, 1, 1, 1);
  sites.optimizer = replicas.optimizer = "SGD";
  sites.outer = average(1);
  RunConfig of_sites = config_of(sites), of_replicas = config_of(replicas);
  of_sites.gradient_clipping = of_replicas.gradient_clipping = 0;
  of_sites.optimizer.lr = of_replicas.optimizer.lr = 0.1;
  const auto got = trained_without_masks(of_sites), want = trained_without_masks(of_replicas);
  of_sites.outer.period = 2;
  const auto other = trained_without_masks(of_sites);
  EXPECT_LT(largest_difference(got, want), 1e-12);
  EXPECT_GT(largest_difference(other, want), 1e-6);
}

TEST(Outer, WithoutMomentumBlockMomentumIsAveraging) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer = average(2);
  const LayoutResult averaged = run(c);
  c.outer.algorithm = "block_momentum";
  EXPECT_EQ(run(c).parameters, averaged.parameters);
  c.outer.warmup_steps = 5;
  c.outer.period = 5;
  c.outer.momentum = 0.5;
  const LayoutResult warm = run(c);  // rounds after all steps
  c.outer = average(1);
  EXPECT_EQ(run(c).parameters, warm.parameters);
}

TEST(Outer, IsExactWhereNothingIsLeftOut) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer = diloco(2);
  c.outer.compression = compression({});
  c.outer.compression.min_bytes = int64_t{1} << 40;  // all tensors are sent exactly
  const LayoutResult exact = run(c);
  for (const CompressionOptions& options :
       {CompressionOptions{.method = "top_k", .ratio = 1.0, .block = 8},
        CompressionOptions{.method = "random_k", .ratio = 1.0, .block = 8},
        CompressionOptions{.method = "powersgd", .rank = 64}}) {
    c.outer.compression = compression(options);
    EXPECT_EQ(layout_difference(run(c), exact, c.dtype), "") << options.method;
  }
}

// Resumes in the middle of a round, and at its end, bit for bit.
TEST(Outer, ResumesAnywhere) {
  std::vector<OuterConfig> all = exchanges();
  all.push_back(diloco(2));
  all.back().compression = compression({.method = "powersgd", .rank = 2});
  for (const OuterConfig& outer : all)
    for (const int64_t step : {2, 3}) {
      LayoutCase c = layout(2, 1, 1, 1, outer.compression.enabled ? 0 : 3);
      c.outer = outer;
      const ScratchDirectory scratch;
      const RunPart straight = run_part(c, 0, 4, "", "");
      run_part(c, 0, step, "", scratch.path());
      const RunPart resumed = run_part(c, step, 4, scratch.path(), "");
      EXPECT_TRUE(resumed.tensors == straight.tensors) << outer.algorithm << " at " << step;
    }
}

// Gradients inside a site are compressed, too: each site has residuals of its own.
TEST(Outer, ResumesWithCompressedGradients) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.outer = diloco(2);
  c.compression = {compression({.bits = 1, .block = 8})};
  const ScratchDirectory scratch;
  const RunPart straight = run_part(c, 0, 4, "", "");
  run_part(c, 0, 3, "", scratch.path());
  EXPECT_TRUE(run_part(c, 3, 4, scratch.path(), "").tensors == straight.tensors);
}

TEST(Outer, ResumesInAnotherLayoutOfTheSites) {
  LayoutCase c = layout(2, 1, 1, 1, 1), other = layout(1, 2, 2, 1);
  c.outer = other.outer = exchanges()[2];
  const ScratchDirectory scratch;
  const RunPart straight = run_part(c, 0, 4, "", "");
  run_part(c, 0, 3, "", scratch.path());
  const RunPart moved = run_part(other, 3, 4, scratch.path(), "");
  EXPECT_NEAR(moved.losses[0], straight.losses[3], 1e-9);
  EXPECT_EQ(moved.replica, "");
}

// Site i continues site i modulo the number of saved ones; one site continues the shared weights.
TEST(Outer, ResumesWithAnotherNumberOfSites) {
  LayoutCase two = layout(1, 1, 1, 1);
  two.outer = diloco(2);
  const ScratchDirectory scratch;
  const RunPart saved = run_part(two, 0, 3, "", scratch.path());
  LayoutCase four = two, one = two;
  four.outer.sites = 4;
  one.outer = {};
  const RunPart in_four = run_part(four, 3, 3, scratch.path(), "");
  for (const std::string kind : {"param", "exp_avg", "exp_avg_sq"}) {
    EXPECT_TRUE(in_four.tensors.at(kind) == saved.tensors.at(kind)) << kind;
    EXPECT_TRUE(in_four.tensors.at(kind + " of site 3") == saved.tensors.at(kind + " of site 1"));
  }
  const RunPart in_one = run_part(one, 3, 3, scratch.path(), "");
  EXPECT_FALSE(in_one.tensors.at("param") == saved.tensors.at("param"));
  EXPECT_TRUE(in_one.tensors.at("exp_avg") == saved.tensors.at("exp_avg"));
  const RunPart at_round = run_part(two, 0, 2, "", "");
  EXPECT_TRUE(in_one.tensors.at("param") == at_round.tensors.at("param"));
}

// Fragments that have their rounds at one step are plain DiLoCo.
TEST(Outer, FragmentsWithoutOverlapAtOneStepAreDiLoCo) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer = diloco(100);  // one round, after the last step
  const LayoutResult whole = run(c);
  c.outer.fragments = 4;
  EXPECT_EQ(run(c).parameters, whole.parameters);
}

// Weights of a site after so many steps.
Weights weights_after(const OuterConfig& outer, int64_t steps, int site = 0) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer = outer;
  const std::string kind = site == 0 ? "param" : concat("param of site ", site);
  return run_part(c, 0, steps, "", "").tensors.at(kind);
}

// Weights of one of two fragments of the model's eight layers.
Weights of_fragment(int fragment, const Weights& weights) {
  Weights some;
  for (const auto& [name, values] : weights) {
    const bool upper =
        name.starts_with("model.layers.") && name[sizeof("model.layers.") - 1] >= '4';
    if (upper == (fragment == 1)) some[name] = values;
  }
  return some;
}

Weights mixed(double mixing, const Weights& own, const Weights& shared) {
  Weights all = own;
  for (auto& [name, values] : all)
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = mixing * values[i] + (1 - mixing) * shared.at(name)[i];
  return all;
}

// Rounds that are open in the checkpoint end as they would have.
TEST(Outer, ResumesOpenRoundsInAnotherLayoutOfTheSites) {
  for (const size_t exchange : {5, 6}) {
    LayoutCase c = layout(2, 1, 1, 1, 1), other = layout(1, 2, 2, 1);
    c.outer = other.outer = exchanges()[exchange];
    const ScratchDirectory scratch;
    const RunPart straight = run_part(c, 0, 4, "", "");
    run_part(c, 0, 2, "", scratch.path());  // one of its rounds ends after step 3
    const RunPart moved = run_part(other, 2, 4, scratch.path(), "");
    for (const size_t step : {2, 3})
      EXPECT_NEAR(moved.losses[step - 2], straight.losses[step], 1e-9);
    EXPECT_EQ(moved.replica, "");
    if (c.outer.compression.enabled) continue;  // rounding may change codes of the last round
    for (const std::string kind : {"param", "param of site 1"})
      EXPECT_LT(largest_difference(moved.tensors.at(kind), straight.tensors.at(kind)), 1e-9);
  }
}

// Sites that were not there when a round began end it as the others do: with the mean over those
// that were. A single site drops it.
TEST(Outer, ResumesOpenRoundsWithAnotherNumberOfSites) {
  LayoutCase two = layout(1, 1, 1, 1);
  two.outer = streaming(4, 2);  // after step 3 a round of fragment 1 is open, which ends after 4
  const ScratchDirectory scratch;
  run_part(two, 0, 3, "", scratch.path());
  LayoutCase unmixed = two, four = two, later = two, one = two;
  unmixed.outer.mixing = 0;
  four.outer.sites = later.outer.sites = 4;
  later.outer.overlap_steps = 3;  // would end it after 5
  one.outer = {};
  const auto resumed = [&](const LayoutCase& c, int64_t to) {
    return run_part(c, 3, to, scratch.path(), "").tensors;
  };
  const Weights shared = of_fragment(1, resumed(unmixed, 4).at("param"));
  const auto in_four = resumed(four, 4), own = resumed(later, 4);
  for (const std::string kind :
       {"param", "param of site 1", "param of site 2", "param of site 3"}) {
    const Weights apart = of_fragment(1, own.at(kind));
    EXPECT_GT(largest_difference(apart, shared), 1e-4);
    EXPECT_LT(largest_difference(of_fragment(1, in_four.at(kind)), mixed(0.5, apart, shared)),
              1e-14)
        << kind;
  }
  EXPECT_EQ(resumed(one, 3).at("param"), weights_after(two.outer, 0));
}

// A round that begins after step 2 and ends after step 4 has the update of step 2, and no effect on
// the weights before it ends.
TEST(Outer, AnOverlappedRoundChangesWeightsAtItsEnd) {
  OuterConfig overlapped = streaming(4, 2), half = overlapped;
  overlapped.mixing = 0;
  const auto fragment_after = [](const OuterConfig& outer, int64_t steps, int site) {
    return of_fragment(1, weights_after(outer, steps, site));
  };
  for (const int site : {0, 1}) {
    const Weights shared = fragment_after(streaming(4, 0), 2, site);
    const Weights apart = fragment_after(diloco(100), 4, site);
    EXPECT_GT(largest_difference(shared, fragment_after(diloco(100), 2, site)), 1e-4);
    for (const int64_t step : {2, 3})
      EXPECT_EQ(weights_after(overlapped, step, site), weights_after(diloco(100), step, site));
    EXPECT_EQ(fragment_after(overlapped, 4, site), shared);
    EXPECT_LT(largest_difference(fragment_after(half, 4, site), mixed(0.5, apart, shared)), 1e-14);
    // The round of the other fragment begins here.
    EXPECT_EQ(of_fragment(0, weights_after(overlapped, 4, site)),
              of_fragment(0, weights_after(diloco(100), 4, site)));
  }
}

// The second of two sites skips its first step: that round moves the weights by half of the first
// site's update, and both train and exchange in the next steps.
TEST(Outer, AStepSkippedOnOneSiteIsAnUpdateOfZero) {
  LayoutCase c = layout(2, 1, 1, 1, 1);
  c.outer = average(1);
  std::vector<double> trained;  // weights of the first site after its first step
  on_ranks(config_of(c), {}, [&](LayoutRank& rank) {
    const Tensor weights = rank.state.store.flat_values();
    const std::span<double> values(weights.as<double>(), static_cast<size_t>(weights.numel()));
    const std::vector<double> before = to_doubles(weights);
    const bool skips = rank.state.site.index == 1;
    if (skips) values[0] = std::numeric_limits<double>::quiet_NaN();
    const StepResult first = rank.step.run(0, rank.batches(0, false), rank.plan);
    EXPECT_EQ(first.skipped, skips);
    if (skips) values[0] = before[0];
    EXPECT_EQ(to_doubles(weights) == before, skips);
    if (rank.world.rank() == 0) trained = to_doubles(weights);
    const OuterRound round = rank.outer->after_step(1, rank.config.train_steps);
    EXPECT_TRUE(round.left_out.empty());
    EXPECT_NEAR(round.drift, round.update_norm, 1e-9);  // of d and 0 both are |d| / 2
    rank.world.barrier();                               // `trained` is complete
    for (size_t i = 0; i < before.size(); ++i)
      ASSERT_NEAR(values[i], (before[i] + trained[i]) / 2, 1e-12) << i;
    for (int64_t step = 1; step < 4; ++step) {
      const StepResult result = rank.train(step, false);
      EXPECT_FALSE(result.skipped);
      EXPECT_EQ(result.consecutive_skips, 0);
      EXPECT_EQ(result.total_skips, skips ? 1 : 0);
    }
    const std::vector<double> own = to_doubles(weights);
    if (rank.world.rank() == 0) trained = own;
    rank.world.barrier();
    EXPECT_EQ(own, trained);
  });
}

// Evaluations at any step of open rounds see the shared weights and do not change the run.
TEST(Outer, EvaluatesInOpenRounds) {
  LayoutCase c = layout(2, 1, 1, 1, 3);
  // Fragment 1: begins after step 2, second phase after 4, ends after 6. Fragment 0: 5, 7, 9.
  c.outer = streaming(5, 4);
  c.outer.compression = compression({.bits = 8, .block = 8});
  RunConfig config = config_of(c);
  config.train_steps = 10;
  const auto trained = [&](const std::vector<int64_t>& evaluated) {
    std::array<Weights, 2> sites;
    std::mutex mutex;
    on_ranks(config, {}, [&](LayoutRank& rank) {
      const ParameterStore& store = rank.state.store;
      const std::vector<double> first = to_doubles(store.flat_values());
      for (int64_t step = 1; step <= 9; ++step) {
        rank.train(step - 1, false);
        if (std::ranges::count(evaluated, step) == 0) continue;
        const std::vector<double> own = to_doubles(store.flat_values());
        EXPECT_NE(own, first);
        rank.outer->with_shared_weights([&] {
          EXPECT_EQ(to_doubles(store.flat_values()) == first, step < 6) << "step " << step;
        });
        EXPECT_EQ(to_doubles(store.flat_values()), own);
      }
      const std::lock_guard lock(mutex);
      place_owned(store, store.flat_values(), store.value_map(),
                  sites.at(static_cast<size_t>(rank.state.site.index)));
    });
    return sites;
  };
  const auto straight = trained({});
  EXPECT_NE(straight[0], straight[1]);
  for (const std::vector<int64_t>& evaluated :
       {std::vector<int64_t>{2}, {3}, {4}, {5}, {2, 3, 4, 5, 6, 7, 8, 9}})
    EXPECT_TRUE(trained(evaluated) == straight) << evaluated.size() << " " << evaluated[0];
}

TEST(Outer, LeavesOutAnUpdateThatIsNotFinite) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.outer = average(10);
  c.outer.sites = 3;
  c.outer.compression = compression({.bits = 8, .block = 8});
  RunConfig config = config_of(c);
  config.gradient_accumulation_steps = 1;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    const Tensor weights = rank.state.store.flat_values();
    const std::vector<double> before = to_doubles(weights);
    const int site = rank.state.site.index;
    weights.as<double>()[0] += site == 0 ? 1 : 3;
    if (site == 1 && rank.groups.world.rank() == 0)
      weights.as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
    const OuterRound round = rank.outer->after_step(10, 100);
    EXPECT_EQ(round.left_out, std::vector<int>{1});
    EXPECT_NEAR(weights.as<double>()[0], before[0] + 2, 0.1);
    EXPECT_NEAR(round.update_norm, 2, 0.1);
    EXPECT_NEAR(round.drift, 1, 0.1);
    for (double& weight : std::span(weights.as<double>(), 4)) weight = 1 / (weight - weight);
    const Tensor& shared = rank.state.outer->units().front()->shared;
    const std::vector<double> kept = to_doubles(shared);
    EXPECT_EQ(rank.outer->after_step(20, 100).left_out.size(), 3u);  // nobody is left
    EXPECT_EQ(to_doubles(shared), kept);
    EXPECT_NEAR(weights.as<double>()[0], before[0] + 2, 0.1);
  });
}

// Its own weights are of no use, so that they are not mixed in.
TEST(Outer, LeavesOutAnUpdateOfAnOverlappedRoundThatIsNotFinite) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.outer = average(10);
  c.outer.sites = 3;
  c.outer.overlap_steps = 2;
  c.outer.mixing = 0.5;
  RunConfig config = config_of(c);
  config.gradient_accumulation_steps = 1;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    const Tensor weights = rank.state.store.flat_values();
    const std::vector<double> before = to_doubles(weights);
    double& weight = weights.as<double>()[0];
    const int site = rank.state.site.index;
    weight += site == 0 ? 1 : 3;
    if (site == 1) weight = std::numeric_limits<double>::quiet_NaN();
    for (const int64_t step : {10, 11}) EXPECT_EQ(rank.outer->after_step(step, 100).fragments, 0);
    EXPECT_EQ(std::isnan(weight), site == 1);
    EXPECT_EQ(rank.outer->after_step(12, 100).left_out, std::vector<int>{1});
    std::vector<double> want = before;  // the mean of the others is 2
    want[0] += 2;
    if (site != 1) want[0] = 0.5 * want[0] + 0.5 * (before[0] + (site == 0 ? 1 : 3));
    EXPECT_EQ(compare(weights, want, tolerance(DType::kF64, 4)), "");
    for (const int64_t step : {20, 21, 22})  // it counts again
      EXPECT_EQ(rank.outer->after_step(step, 100).left_out, std::vector<int>());
    want = before;
    want[0] += 2;
    // Updates of -0.5, 0 and 0.5 from the shared weights, which therefore stay as they are.
    if (site != 1) want[0] += site == 0 ? -0.25 : 0.25;
    EXPECT_EQ(compare(weights, want, tolerance(DType::kF64, 4)), "");
  });
}

}  // namespace
}  // namespace trireme::test::test_outer
