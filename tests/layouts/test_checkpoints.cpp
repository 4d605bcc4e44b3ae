// Saved under one layout, loaded under any other: every tensor bit for bit, optimizer state included.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/layouts/layout_run.h"
#include "tests/support/scratch_directory.h"
#include "training/train_checkpoint.h"

namespace trireme::test {
namespace {

using Tensors = std::map<std::string, std::vector<double>>;  // "exp_avg model.norm.weight"

LayoutCase layout(int tp, int dp, int zero, bool sequence_parallel = false) {
  LayoutCase c;
  c.sizes.tp = tp;
  c.sizes.dp = dp;
  c.sizes.sequence_parallel = sequence_parallel;
  c.zero = zero;
  c.llama = false;         // the table that the head shares lies on two stages of a pipeline
  c.dtype = DType::kBF16;  // with master weights
  return c;
}

LayoutCase stages(LayoutCase c, int pp) {
  c.sizes.pp = pp;
  return c;
}

// Everything the ranks of a run store, put together.
class Whole {
 public:
  void add(const TrainState& state) {
    const std::lock_guard lock(mutex_);
    const auto put = [&](const std::string& kind, const Tensor& array, const ShardMap& map) {
      place_owned(state.store, array, map, parts_[kind]);
    };
    put("param", state.store.flat_values(), state.store.value_map());
    for (const FlatOptimizer::State& s : state.optimizer.states())
      put(s.kind, s.flat, state.store.state_map());
  }
  const std::map<std::string, Tensors>& parts() const { return parts_; }

 private:
  std::map<std::string, Tensors> parts_;
  std::mutex mutex_;
};

struct Trained {
  std::map<std::string, Tensors> tensors;
  std::vector<double> losses;
};

// Steps [from, to) after loading what `load` names, if anything; then saved under `save`, if anything.
Trained run(const LayoutCase& c, int64_t from, int64_t to, const std::string& load,
            const std::string& save) {
  RunConfig config = config_of(c);
  config.checkpoint.save = save;
  Whole whole;
  Trained out;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    if (!load.empty()) {
      const TrainPosition at = load_train_checkpoint(
          rank.ctx, CheckpointReader(find_checkpoint(load).directory), rank.state);
      EXPECT_EQ(at.step, from);
    }
    for (int64_t s = from; s < to; ++s) {
      const StepResult result = rank.train(s, c.packed);
      if (rank.groups.world.rank() == 0) out.losses.push_back(result.loss);
    }
    if (!save.empty())
      save_train_checkpoint(rank.ctx, config, rank.state, {to, to * config.train_batch_size},
                            rank.groups);
    whole.add(rank.state);
  });
  out.tensors = whole.parts();
  return out;
}

std::vector<LayoutCase> layouts() {
  return {layout(2, 2, 3, true), layout(4, 1, 0),        layout(1, 4, 1),           layout(1, 1, 0),
          layout(1, 3, 3),       layout(2, 3, 2, false), stages(layout(1, 2, 3), 2)};
}

TEST(Checkpoints, AnyLayoutLoadsAnyOther) {
  for (size_t i = 0; i < layouts().size(); ++i) {
    const ScratchDirectory scratch;
    LayoutCase from = layouts()[i];
    if (8 % from.sizes.dp != 0) continue;  // trains with 8 sequences; loading needs none
    const Trained saved = run(from, 0, 2, "", scratch.path());
    EXPECT_EQ(saved.tensors.size(), 4u);  // param, master, exp_avg, exp_avg_sq
    for (LayoutCase to : layouts()) {
      const Trained loaded = run(to, 2, 2, scratch.path(), "");
      EXPECT_TRUE(loaded.tensors == saved.tensors) << from.name() << " -> " << to.name();
    }
  }
}

TEST(Checkpoints, ContinuingUnderTheSameLayoutIsBitwiseTheSameRun) {
  for (const LayoutCase& c :
       {layout(2, 2, 3, true), layout(1, 4, 1), layout(1, 2, 2), stages(layout(1, 2, 2), 2)}) {
    const ScratchDirectory scratch;
    const Trained straight = run(c, 0, 4, "", "");
    run(c, 0, 2, "", scratch.path());
    const Trained resumed = run(c, 2, 4, scratch.path(), "");
    EXPECT_TRUE(resumed.tensors == straight.tensors) << c.name();
    EXPECT_EQ(resumed.losses, (std::vector<double>{straight.losses[2], straight.losses[3]}));
  }
}

}  // namespace
}  // namespace trireme::test
