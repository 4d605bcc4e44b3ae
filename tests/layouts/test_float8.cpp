// FP8 training: close to the same training without FP8, in every layout, and exactly resumable.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "engine/ops/rows/transfer.h"
#include "tests/layouts/float8_case.h"
#include "tests/layouts/layout_run.h"
#include "tests/support/scratch_directory.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test::test_float8 {
namespace {

constexpr Float8Recipe kRecipes[] = {Float8Recipe::kDelayed, Float8Recipe::kTensorwise,
                                     Float8Recipe::kBlockwise};

// Rounding to three bits of mantissa has an error of at most 2^-4 of a value, and an RMS error of
// at most 2^-4 / sqrt(3); two operands per product, in E5M2 2^-3. A gradient of the deepest layer
// has passed through four products forward and four backward in each of two layers, whose errors
// are independent.
TEST(Float8Training, StaysNearTheSameTrainingWithout) {
  for (const bool hybrid : {true, false})
    for (const Float8Recipe recipe : kRecipes) {
      RunConfig config = float8_config(recipe, DType::kBF16);
      config.float8.hybrid = hybrid;
      config.train_steps = 12;
      config.optimizer.lr = 3e-3;
      const LayoutResult got = run_training(config, false, {});
      config.float8.enabled = false;
      const LayoutResult want = run_training(config, false, {});
      const double forward = std::exp2(-4) / std::sqrt(3.0),
                   backward = hybrid ? 2 * forward : forward;
      const double rounding =
          std::sqrt(8 * (2 * forward * forward) + 8 * (forward * forward + backward * backward));
      const double error = first_gradient_error(got, want);
      EXPECT_LE(error, rounding);
      EXPECT_GE(error, rounding / 8) << "nothing was rounded";
      for (size_t s = 0; s < got.losses.size(); ++s)
        EXPECT_NEAR(got.losses[s], want.losses[s], rounding * rounding * want.losses[s]) << s;
      EXPECT_LT(got.losses.back(), got.losses.front() - 0.5);
    }
}

struct Named {
  const char* name;
  std::function<void(RunConfig&)> change;
  bool in_groups = true;  // groups of 128 neighbours are preserved
};

std::vector<Named> layouts() {
  return {{"tp2",
           [](RunConfig& c) {
             c.parallel.tp = 2;
             c.parallel.sequence_parallel = true;
           },
           false},
          {"tp2, all tokens on each", [](RunConfig& c) { c.parallel.tp = 2; }, false},
          {"cp2", [](RunConfig& c) { c.parallel.cp = 2; }, false},
          {"dp2 zero3",
           [](RunConfig& c) {
             c.parallel.dp = 2;
             c.gradient_accumulation_steps = 2;
             c.zero.stage = 3;
           }},
          {"pp2",
           [](RunConfig& c) {
             c.parallel.pp = 2;
             c.pipeline.schedule = "zb_h1";
           }},
          {"recompute", [](RunConfig& c) { c.recompute = Recompute::kFull; }}};
}

TEST(Float8Training, DoesNotDependOnTheLayout) {
  for (const Float8Recipe recipe : kRecipes) {
    const RunConfig alone = float8_config(recipe, DType::kF64);
    const LayoutResult want = run_training(alone, false, {});
    for (const Named& layout : layouts()) {
      if (recipe == Float8Recipe::kBlockwise && !layout.in_groups) continue;
      RunConfig config = alone;
      layout.change(config);
      EXPECT_EQ(layout_difference(run_training(config, false, {}), want, DType::kF64), "")
          << layout.name;
    }
  }
}

using Remembered = std::map<std::string, std::vector<double>>;
Remembered remembered(Ctx& ctx, const TrainState& state) {
  Remembered out;
  for (const Float8State::Named& t : state.model.float8()->saved()) {
    const std::vector<float> values = to_host<float>(ctx, t.tensor);
    out[t.name].assign(values.begin(), values.end());
  }
  return out;
}

// Scales after two steps.
Remembered scales_of(const RunConfig& config) {
  Remembered out;
  std::mutex mutex;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    for (int64_t s = 0; s < 2; ++s) rank.train(s, false);
    const std::lock_guard lock(mutex);
    for (const auto& [name, values] : remembered(rank.ctx, rank.state)) {
      const auto [there, fresh] = out.emplace(name, values);
      EXPECT_EQ(there->second, values) << name;  // equal on all ranks that have it
    }
  });
  return out;
}

TEST(Float8Training, ScalesAreThoseOfWholeTensors) {
  const RunConfig alone = float8_config(Float8Recipe::kDelayed, DType::kF64);
  const Remembered want = scales_of(alone);
  EXPECT_EQ(want.size(), 2u * 4 * 3 * 2);  // layers, weights, tensors, scale and history
  for (const auto& [name, values] : want)
    for (const double value : values) EXPECT_GT(value, 0) << name;
  for (const Named& layout : layouts()) {
    RunConfig config = alone;
    layout.change(config);
    const Remembered got = scales_of(config);
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want)
      EXPECT_EQ(got.at(name), values) << layout.name << " " << name;
  }
}

// Shared experts are linear layers like others; routed experts keep their dtype.
TEST(Float8Training, SharedExpertsTakePart) {
  RunConfig config = float8_config(Float8Recipe::kDelayed, DType::kF64);
  config.model.family = ModelFamily::kQwen2Moe;
  MoeConfig& moe = config.model.moe;
  moe.experts = 4;
  moe.experts_per_token = 2;
  moe.intermediate_size = 24;
  moe.shared_intermediate_size = 32;
  moe.shared_gate = true;
  EXPECT_EQ(scales_of(config).size(), 2u * 4 * 3 * 2);
  const LayoutResult alone = run_training(config, false, {});
  config.parallel.tp = config.parallel.etp = 2;
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(layout_difference(run_training(config, false, {}), alone, DType::kF64), "");
}

struct Outcome {
  std::vector<double> losses;
  std::vector<Remembered> scales;
  bool operator==(const Outcome&) const = default;
};

Outcome steps(RunConfig config, int64_t from, int64_t to, const std::string& load,
              const std::string& save) {
  config.checkpoint.save = save;
  Outcome out;
  out.scales.resize(static_cast<size_t>(world_size(config.parallel)));
  on_ranks(config, {}, [&](LayoutRank& rank) {
    if (!load.empty())
      load_train_checkpoint(rank.ctx, CheckpointReader(find_checkpoint(load).directory),
                            rank.state);
    for (int64_t s = from; s < to; ++s) {
      const StepResult result = rank.train(s, false);
      if (rank.groups.world.rank() == 0) out.losses.push_back(result.loss);
    }
    if (!save.empty())
      save_train_checkpoint(rank.ctx, config, rank.state, {to, to * config.train_batch_size},
                            rank.groups);
    out.scales[static_cast<size_t>(rank.groups.world.rank())] = remembered(rank.ctx, rank.state);
  });
  return out;
}

TEST(Float8Training, ContinuesExactly) {
  for (const Float8Recipe recipe : kRecipes)
    for (const int pp : {1, 2}) {
      RunConfig config = float8_config(recipe, DType::kBF16);
      config.parallel.pp = pp;
      config.parallel.tp = recipe == Float8Recipe::kDelayed ? 2 : 1;
      const ScratchDirectory scratch;
      const Outcome straight = steps(config, 0, 4, "", "");
      steps(config, 0, 2, "", scratch.path());
      const Outcome resumed = steps(config, 2, 4, scratch.path(), "");
      EXPECT_EQ(resumed.losses, (std::vector<double>{straight.losses[2], straight.losses[3]}));
      EXPECT_EQ(resumed.scales, straight.scales);
    }
}

TEST(Float8Training, ASkippedStepLeavesNoTrace) {
  on_ranks(float8_config(Float8Recipe::kDelayed, DType::kBF16), {}, [](LayoutRank& rank) {
    rank.train(0, false);
    const Remembered before = remembered(rank.ctx, rank.state);
    StepState steps = rank.state.read_step_state(rank.ctx);
    const double usual = steps.loss_scale;
    steps.loss_scale = std::numeric_limits<double>::infinity();
    rank.state.write_step_state(rank.ctx, steps);
    EXPECT_TRUE(rank.train(1, false).skipped);
    EXPECT_EQ(remembered(rank.ctx, rank.state), before);
    steps = rank.state.read_step_state(rank.ctx);
    steps.loss_scale = usual;
    rank.state.write_step_state(rank.ctx, steps);
    EXPECT_FALSE(rank.train(2, false).skipped);
    for (const auto& [name, values] : remembered(rank.ctx, rank.state))
      for (const double value : values) EXPECT_TRUE(std::isfinite(value)) << name;
  });
}

}  // namespace
}  // namespace trireme::test::test_float8
