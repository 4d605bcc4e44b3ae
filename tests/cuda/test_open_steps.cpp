// The host queues a step on a GPU while the previous one runs, and reads the results of each one
// step later: without synchronization, and equal to immediate reads.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/layouts/layout_run.h"

namespace trireme::test {
namespace {

LayoutRunOptions one_gpu() {
  LayoutRunOptions options;
  options.gpu = true;
  return options;
}

void expect_same(const StepResult& got, const StepResult& want) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  EXPECT_TRUE(same(got.loss, want.loss)) << got.loss << ", expected " << want.loss;
  EXPECT_TRUE(same(got.grad_norm, want.grad_norm)) << got.grad_norm << ", " << want.grad_norm;
  EXPECT_EQ(got.learning_rate, want.learning_rate);
  EXPECT_EQ(got.loss_scale, want.loss_scale);
  EXPECT_EQ(got.valid_tokens, want.valid_tokens);
  EXPECT_EQ(got.skipped, want.skipped);
  EXPECT_EQ(got.first_bad, want.first_bad);
  EXPECT_EQ(got.consecutive_skips, want.consecutive_skips);
  EXPECT_EQ(got.total_skips, want.total_skips);
  EXPECT_EQ(got.router_losses, want.router_losses);
  ASSERT_EQ(got.expert_loads.size(), want.expert_loads.size());
  for (size_t i = 0; i < want.expert_loads.size(); ++i) {
    EXPECT_EQ(got.expert_loads[i].layer, want.expert_loads[i].layer);
    EXPECT_EQ(got.expert_loads[i].p90, want.expert_loads[i].p90);
  }
}

// Results of all steps, with at most `open` steps in flight.
std::vector<StepResult> results(const RunConfig& config, bool packed, int64_t open,
                                const LayoutRunOptions& options) {
  std::vector<StepResult> out;
  on_ranks(config, options, [&](LayoutRank& rank) {
    for (int64_t s = 0; s < config.train_steps; ++s) {
      rank.step.start(s, rank.batches(s, packed), rank.plan);
      while (rank.step.open() >= open) out.push_back(rank.step.finish());
    }
    while (rank.step.open() > 0) out.push_back(rank.step.finish());
  });
  return out;
}

LayoutCase dense() {
  LayoutCase c;
  c.packed = c.dropout = true;
  return c;
}

// Two micro-batches per step.
RunConfig short_steps(const LayoutCase& c) {
  RunConfig config = config_of(c);
  config.model.num_layers = 2;
  config.train_batch_size = config.gradient_accumulation_steps = 2;
  config.scheduler.style = DecayStyle::kLinear;  // a different rate in each step
  return config;
}

TEST(OpenSteps, WaitOnceForAStepThatIsRead) {
  for (const bool llama : {true, false}) {
    LayoutCase c = dense();
    c.llama = llama;
    const RunConfig config = short_steps(c);
    on_ranks(config, one_gpu(), [&](LayoutRank& rank) {
      const auto waits = [&](const auto& work) {
        const int64_t before = emulator::counters().synchronized();
        work();
        return emulator::counters().synchronized() - before;
      };
      rank.step.start(0, rank.batches(0, true),
                      rank.plan);  // memory for batches, plans of products
      for (int64_t s = 1; s < 4; ++s) {
        const std::vector<MicroBatch> batches = rank.batches(s, true);
        EXPECT_EQ(waits([&] { rank.step.start(s, batches, rank.plan); }), 0) << "step " << s;
        const int64_t copied = emulator::counters().bytes_to_host;
        EXPECT_EQ(waits([&] { rank.step.finish(); }), 1) << "step " << s - 1;
        EXPECT_LE(emulator::counters().bytes_to_host - copied, 1024);
      }
      rank.step.finish();
    });
  }
}

TEST(OpenSteps, AreReadAsIfAtOnce) {
  LayoutCase experts;
  experts.experts = "mixtral";
  for (const LayoutCase& c : {dense(), experts}) {
    const RunConfig config = short_steps(c);
    const std::vector<StepResult> want = results(config, c.packed, 1, one_gpu());
    const std::vector<StepResult> late = results(config, c.packed, 2, one_gpu());
    const std::vector<StepResult> cpu = results(config, c.packed, 1, {});
    ASSERT_EQ(want.size(), static_cast<size_t>(config.train_steps));
    ASSERT_EQ(late.size(), want.size());
    for (size_t s = 0; s < want.size(); ++s) {
      SCOPED_TRACE(s);
      expect_same(late[s], want[s]);
      EXPECT_NEAR(late[s].loss, cpu[s].loss, 1e-9);
      EXPECT_EQ(late[s].learning_rate, cpu[s].learning_rate);
      EXPECT_EQ(late[s].valid_tokens, cpu[s].valid_tokens);
    }
  }
}

// A loss scale that initially overflows float16: steps are skipped until it is small enough, and
// each reports the gradient that overflowed although the next step has others.
TEST(OpenSteps, OfFloat16AreSkippedAndScaledAsOnTheCpu) {
  LayoutCase c;
  c.dtype = DType::kF16;
  RunConfig config = short_steps(c);
  config.train_steps = 12;
  config.loss_scale.initial_scale_power = 24;
  config.loss_scale.window = 2;
  const std::vector<StepResult> want = results(config, false, 1, one_gpu());
  const std::vector<StepResult> late = results(config, false, 2, one_gpu());
  const std::vector<StepResult> cpu = results(config, false, 1, {});
  ASSERT_EQ(late.size(), want.size());
  int skips = 0;
  for (size_t s = 0; s < want.size(); ++s) {
    SCOPED_TRACE(s);
    expect_same(late[s], want[s]);
    EXPECT_EQ(late[s].skipped, cpu[s].skipped);
    EXPECT_EQ(late[s].loss_scale, cpu[s].loss_scale);
    EXPECT_EQ(late[s].total_skips, cpu[s].total_skips);
    EXPECT_EQ(late[s].first_bad.empty(), !late[s].skipped);
    if (late[s].skipped) {
      EXPECT_NE(late[s].first_bad, "the loss");
    }
    skips += late[s].skipped ? 1 : 0;
  }
  EXPECT_GT(skips, 2);
  EXPECT_LT(skips, 12);
}

TEST(OpenSteps, AreTwoAtMost) {
  const RunConfig config = short_steps(LayoutCase());
  on_ranks(config, one_gpu(), [&](LayoutRank& rank) {
    EXPECT_EQ(rank.step.max_open(), 2);
    EXPECT_THROW(rank.step.finish(), Error);
    for (int64_t s = 0; s < 2; ++s) rank.step.start(s, rank.batches(s, false), rank.plan);
    EXPECT_THROW(rank.step.start(2, rank.batches(2, false), rank.plan), Error);
    rank.step.finish();
    rank.step.finish();
  });
  on_ranks(config, {}, [&](LayoutRank& rank) { EXPECT_EQ(rank.step.max_open(), 1); });
}

}  // namespace
}  // namespace trireme::test
