// Recorded micro-batches: bitwise equal to the same work queued kernel by kernel, with one launch
// each.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/layouts/layout_run.h"

namespace trireme::test {
namespace {

LayoutRunOptions on_gpus(DeviceBackend backend = DeviceBackend::kAuto) {
  LayoutRunOptions options;
  options.gpu = true;
  options.backend = backend;
  return options;
}

RunConfig config_for(const LayoutCase& c, int64_t micro_batches) {
  RunConfig config = config_of(c);
  config.model.num_layers = 2;
  config.gradient_accumulation_steps = micro_batches;
  config.train_batch_size = micro_batches * c.sizes.dp;
  config.train_steps = 4;
  config.scheduler.style = DecayStyle::kLinear;
  return config;
}

struct Outcome {
  LayoutResult result;
  int64_t replays = 0;
};

Outcome train(RunConfig config, bool packed, bool graphs, const LayoutRunOptions& options) {
  config.cuda_graphs = graphs;
  const int64_t before = emulator::counters().graph_launches;
  Outcome out;
  out.result = run_training(config, packed, options);
  out.replays = emulator::counters().graph_launches - before;
  return out;
}

void expect_same_bits(const LayoutResult& got, const LayoutResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.gradients, want.gradients);
  EXPECT_EQ(got.parameters, want.parameters);
}

struct Case {
  const char* name;
  LayoutCase layout;
  int64_t micro_batches, steps, min_replays;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Recorded : public testing::TestWithParam<Case> {};

TEST_P(Recorded, MicroBatchesAreThePlainOnes) {
  const Case& c = GetParam();
  RunConfig config = config_for(c.layout, c.micro_batches);
  config.train_steps = c.steps;
  const Outcome plain = train(config, c.layout.packed, false, on_gpus());
  EXPECT_EQ(plain.replays, 0);
  const Outcome recorded = train(config, c.layout.packed, true, on_gpus());
  EXPECT_GE(recorded.replays, c.min_replays);
  expect_same_bits(recorded.result, plain.result);
}

std::vector<Case> cases() {
  LayoutCase llama, gpt2, packed, dropout, recompute, bf16;
  gpt2.llama = false;
  packed.packed = true;
  dropout.dropout = true;
  recompute.recompute = Recompute::kFull;
  bf16.dtype = DType::kBF16;
  LayoutCase gpt2_dropout = dropout, packed_dropout = dropout;
  gpt2_dropout.llama = false;
  packed_dropout.packed = true;
  // The first micro-batch of a step and the following ones are each queued once without a record.
  // Packed documents vary in number, and some numbers repeat. With dropout, each step records
  // again all micro-batches after its first two.
  return {{"one", llama, 1, 4, 3},
          {"llama", llama, 3, 4, 10},
          {"gpt2", gpt2, 3, 4, 10},
          {"packed", packed, 8, 4, 12},
          {"dropout", dropout, 12, 2, 16},
          {"gpt2_dropout", gpt2_dropout, 12, 2, 16},
          {"packed_dropout", packed_dropout, 12, 2, 2},
          {"few_with_dropout", packed_dropout, 3, 2, 0},
          {"recompute", recompute, 3, 2, 4},
          {"bfloat16", bf16, 3, 2, 4}};
}

INSTANTIATE_TEST_SUITE_P(Models, Recorded, testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(MicroBatchGraphs, LaunchOnceAndWaitForNothing) {
  const RunConfig config = config_for(LayoutCase(), 3);
  on_ranks(config, on_gpus(), [&](LayoutRank& rank) {
    EXPECT_EQ(rank.step.graphs().why_not(), "");
    int64_t plain = 0;
    for (int64_t s = 0; s < 4; ++s) {
      const std::vector<MicroBatch> batches = rank.batches(s, false);
      const int64_t launches = rank.ctx.gpu->launches;
      const emulator::Counters before = emulator::counters();
      rank.step.start(s, batches, rank.plan);
      const emulator::Counters now = emulator::counters();
      const int64_t made = rank.ctx.gpu->launches - launches;
      rank.step.finish();
      if (s == 0) plain = made;
      if (s < 2) continue;  // the very first step, and the one that makes the records
      EXPECT_EQ(now.graph_launches - before.graph_launches, 3);
      EXPECT_EQ(now.synchronized() - before.synchronized(), 0);
      EXPECT_EQ(now.allocations - before.allocations, 0);
      EXPECT_LT(3 * made, plain);
    }
  });
}

// The gradients of the last micro-batch are reduced while it runs.
TEST(MicroBatchGraphs, OfDataParallelRanksAreAllButTheLast) {
  LayoutCase c;
  c.sizes.dp = 2;
  const RunConfig config = config_for(c, 3);
  emulator::set_devices(2);
  const Outcome plain = train(config, false, false, on_gpus(DeviceBackend::kNccl));
  const Outcome recorded = train(config, false, true, on_gpus(DeviceBackend::kNccl));
  emulator::set_devices(1);
  EXPECT_EQ(recorded.replays, 2 * (3 + 3));
  expect_same_bits(recorded.result, plain.result);
}

TEST(MicroBatchGraphs, SayWhatIsInTheWay) {
  const auto why = [](const LayoutCase& c, int64_t micro_batches, bool synchronous = false) {
    std::string said;
    RunConfig config = config_for(c, micro_batches);
    emulator::set_devices(c.ranks());
    on_ranks(config, on_gpus(DeviceBackend::kNccl), [&](LayoutRank& rank) {
      if (rank.groups.world.rank() != 0) return;
      rank.ctx.gpu->synchronous = synchronous;
      const TrainStep step(config, rank.state, rank.groups, rank.ctx);
      said = step.graphs().why_not();
    });
    emulator::set_devices(1);
    return said;
  };
  LayoutCase dense, experts, dp;
  experts.experts = "mixtral";
  dp.sizes.dp = 2;
  EXPECT_EQ(why(dense, 1), "");
  EXPECT_NE(why(dense, 3, true).find("cuda.synchronous"), std::string::npos);
  EXPECT_NE(why(experts, 3).find("expert"), std::string::npos);
  EXPECT_EQ(why(dp, 2), "");
  EXPECT_NE(why(dp, 1).find("a step has one micro-batch"), std::string::npos);
  RunConfig off = config_for(experts, 3);
  off.cuda_graphs = false;
  on_ranks(off, on_gpus(), [](LayoutRank& rank) { EXPECT_EQ(rank.step.graphs().why_not(), ""); });
}

}  // namespace
}  // namespace trireme::test
