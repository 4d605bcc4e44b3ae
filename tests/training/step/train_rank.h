// Training on one rank of a test: context, groups, state and step, with fresh weights.
#pragma once

#include "training/step/train_step.h"

namespace trireme::test {

struct TrainRank {
  // Collective; `config` and `group` outlive this.
  TrainRank(const RunConfig& config, Communicator& group)
      : ctx(1, "test"),
        groups(group, config.parallel),
        state(config, groups.layout),
        step(config, state, groups, ctx) {
    ctx.seed = config.seed;
    plan = start_fresh(state, step, ctx);
  }
  StepResult run(int64_t number, const std::vector<MicroBatch>& batches) {
    return step.run(number, batches, plan);
  }
  Ctx ctx;
  Groups groups;
  TrainState state;
  TrainStep step;
  ArenaPlan plan;
};

}  // namespace trireme::test
