// State of routers on a GPU: it is restored from a checkpoint and unchanged by a skipped step, and
// pairs over an expert's capacity are dropped as on the CPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "engine/ops/rows/transfer.h"
#include "tests/layouts/layout_run.h"
#include "tests/support/scratch_directory.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/checkpoint_parameters.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test {
namespace {

LayoutRunOptions on_gpu() {
  LayoutRunOptions options;
  options.gpu = true;
  return options;
}

RunConfig config_for(const char* experts) {
  LayoutCase c;
  c.experts = experts;
  RunConfig config = config_of(c);
  config.model.num_layers = 3;
  config.train_batch_size = config.gradient_accumulation_steps = 2;
  config.train_steps = 4;
  return config;
}

using Bits = std::vector<std::vector<uint8_t>>;

// Bits of weights, optimizer states, biases and shares of experts.
Bits bits(LayoutRank& rank) {
  const auto bytes = [&](const ConstTensor& t) {
    std::vector<uint8_t> out(static_cast<size_t>(t.bytes()));
    const Shape all{t.bytes()};
    transfer(rank.ctx, Tensor(out.data(), DType::kU8, all),
             ConstTensor(t.raw(), DType::kU8, all, t.device()));
    return out;
  };
  Bits out{bytes(rank.state.store.flat_values())};
  for (const FlatOptimizer::State& s : rank.state.optimizer.states()) out.push_back(bytes(s.flat));
  for (const RouterState::Named& named : rank.state.model.routers()->saved())
    out.push_back(bytes(named.tensor));
  return out;
}

// Steps [from, to) after loading `load`, then saved under `save`; "": does not load or save.
Bits trained(RunConfig config, int64_t from, int64_t to, const std::string& load,
             const std::string& save) {
  config.checkpoint.save = save;
  Bits out;
  on_ranks(config, on_gpu(), [&](LayoutRank& rank) {
    if (!load.empty())
      load_train_checkpoint(rank.ctx, CheckpointReader(find_checkpoint(load).directory),
                            rank.state);
    for (int64_t s = from; s < to; ++s) EXPECT_FALSE(rank.train(s, false).skipped);
    if (!save.empty())
      save_train_checkpoint(rank.ctx, config, rank.state, {to, to * config.train_batch_size},
                            rank.groups);
    out = bits(rank);
  });
  return out;
}

TEST(RouterStateOnGpu, ComesBackFromACheckpoint) {
  for (const char* experts : {"deepseek", "mixtral"}) {  // biases; shares of the last step
    const ScratchDirectory scratch;
    const RunConfig config = config_for(experts);
    const Bits straight = trained(config, 0, 4, "", "");
    const Bits half = trained(config, 0, 2, "", scratch.path());
    EXPECT_NE(half.back(), straight.back()) << experts;
    EXPECT_EQ(trained(config, 2, 4, scratch.path(), ""), straight) << experts;
  }
}

TEST(RouterStateOnGpu, StaysInASkippedStep) {
  const RunConfig config = config_for("deepseek");
  on_ranks(config, on_gpu(), [&](LayoutRank& rank) {
    const auto set_scale = [&](double scale) {
      StepState state = rank.state.read_step_state(rank.ctx);
      state.loss_scale = scale;
      rank.state.write_step_state(rank.ctx, state);
    };
    EXPECT_FALSE(rank.train(0, false).skipped);
    const Bits before = bits(rank);
    set_scale(std::numeric_limits<double>::infinity());
    const StepResult skipped = rank.train(1, false);
    EXPECT_TRUE(skipped.skipped);
    EXPECT_NE(skipped.first_bad, "the loss");
    EXPECT_EQ(skipped.expert_loads.size(), 1u);
    EXPECT_EQ(bits(rank), before);
    set_scale(1);
    EXPECT_FALSE(rank.train(2, false).skipped);
    EXPECT_NE(bits(rank).back(), before.back());
  });
}

// Experts accept three quarters of an even share: pairs are dropped in every layer.
TEST(CapacityOnGpu, DropsWhatTheCpuDrops) {
  RunConfig config = config_for("mixtral");
  config.model.moe.capacity_factor = 0.75;
  config.train_steps = 2;
  const LayoutResult want = run_training(config, false, {});
  const LayoutResult got = run_training(config, false, on_gpu());
  EXPECT_EQ(layout_difference(got, want, DType::kF64), "");
  config.model.moe.capacity_factor = 0;
  const LayoutResult all = run_training(config, false, on_gpu());
  EXPECT_NE(layout_difference(all, want, DType::kF64), "") << "nothing was dropped";
}

}  // namespace
}  // namespace trireme::test
