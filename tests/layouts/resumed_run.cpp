#include "tests/layouts/resumed_run.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/compare.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test {
namespace {

// Everything that the ranks of a run store, assembled.
class Whole {
 public:
  explicit Whole(RunPart& part) : part_(part) {}

  void add(const TrainState& state, bool first_rank) {
    const std::lock_guard lock(mutex_);
    if (first_rank)
      for (const RouterState::Named& t : routers(state))
        part_.tensors["router"][t.name] = to_doubles(t.tensor);
    for_each_array(state, [&](const std::string& kind, const Tensor& array, const ShardMap& map) {
      place_owned(state.store, array, map, part_.tensors[kind_at(state, kind)]);
    });
  }
  // Call after all ranks have added theirs.
  void compare(const TrainState& state) {
    const std::lock_guard lock(mutex_);
    for_each_array(state, [&](const std::string& kind, const Tensor& array, const ShardMap& map) {
      const std::string different =
          replica_difference(state.store, array, map, part_.tensors[kind_at(state, kind)]);
      if (!different.empty()) part_.replica = concat(kind, " ", different);
    });
    for (const RouterState::Named& t : routers(state))
      if (part_.tensors["router"][t.name] != to_doubles(t.tensor))
        part_.replica = concat("router ", t.name);
  }

 private:
  template <class F>
  static void for_each_array(const TrainState& state, F&& f) {
    f("param", state.store.flat_values(), state.store.value_map());
    for (const FlatOptimizer::State& s : state.optimizer.states())
      f(s.kind, s.flat, state.store.state_map());
  }
  static std::string kind_at(const TrainState& state, const std::string& kind) {
    return state.site.index == 0 ? kind : concat(kind, " of site ", state.site.index);
  }
  static std::vector<RouterState::Named> routers(const TrainState& state) {
    if (state.model.routers() == nullptr) return {};
    return state.model.routers()->saved();
  }
  RunPart& part_;
  std::mutex mutex_;
};

void load_checkpoint(LayoutRank& rank, const std::string& path, int64_t step) {
  const TrainPosition at = load_train_checkpoint(
      rank.ctx, CheckpointReader(find_checkpoint(path).directory), rank.state);
  EXPECT_EQ(at.step, step);
}

void begin_rounds(LayoutRank& rank, int64_t step) {
  if (rank.outer == nullptr) return;
  EXPECT_EQ(rank.outer->begin(rank.state.weights(), rank.outer_plan, step).step, step);
}

}  // namespace

RunPart run_part(const LayoutCase& c, int64_t from, int64_t to, const std::string& load,
                 const std::string& save, const LoadHook& load_hook,
                 const LayoutRunOptions& options) {
  RunConfig config = config_of(c);
  config.checkpoint.save = save;
  RunPart out;
  Whole whole(out);
  on_ranks(config, options, [&](LayoutRank& rank) {
    const auto load_it = [&] {
      if (!load.empty()) load_checkpoint(rank, load, from);
      begin_rounds(rank, from);
    };
    if (load_hook)
      load_hook(rank, load_it);
    else if (!load.empty() || config.outer.is_remote())
      load_it();
    for (int64_t s = from; s < to; ++s) {
      const StepResult result = rank.train(s, c.packed);
      if (rank.world.rank() == 0) out.losses.push_back(result.loss);
    }
    const auto save_it = [&] {
      save_train_checkpoint(rank.ctx, config, rank.state, {to, to * config.train_batch_size},
                            rank.groups, {.all_sites = &rank.world});
    };
    if (!save.empty() && rank.outer != nullptr)
      rank.outer->with_shared_weights(save_it);
    else if (!save.empty())
      save_it();
    whole.add(rank.state, rank.world.rank() == 0);
    rank.world.barrier();
    whole.compare(rank.state);
  });
  return out;
}

}  // namespace trireme::test
