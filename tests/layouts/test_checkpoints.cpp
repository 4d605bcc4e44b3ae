// Checkpoints saved with one layout and loaded with any other: every tensor bitwise equal,
// optimizer state included.
#include <gtest/gtest.h>

#include "tests/layouts/resumed_run.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test::test_checkpoints {
namespace {

LayoutCase gpt2_layout(int tp, int dp, int zero, bool sequence_parallel = false) {
  LayoutCase c = layout(dp, tp, 1, 1, zero, sequence_parallel);
  c.llama = false;         // tied table on two pipeline stages
  c.dtype = DType::kBF16;  // with master weights
  return c;
}

LayoutCase stages(LayoutCase c, int pp) {
  c.sizes.pp = pp;
  return c;
}

std::vector<LayoutCase> layouts() {
  return {gpt2_layout(2, 2, 3, true),     gpt2_layout(4, 1, 0), gpt2_layout(1, 4, 1),
          gpt2_layout(1, 1, 0),           gpt2_layout(1, 3, 3), gpt2_layout(2, 3, 2, false),
          stages(gpt2_layout(1, 2, 3), 2)};
}

TEST(Checkpoints, AnyLayoutLoadsAnyOther) {
  for (size_t i = 0; i < layouts().size(); ++i) {
    const ScratchDirectory scratch;
    LayoutCase from = layouts()[i];
    if (8 % from.sizes.dp != 0) continue;  // training uses 8 sequences; loading needs none
    const RunPart saved = run_part(from, 0, 2, "", scratch.path());
    EXPECT_EQ(saved.tensors.size(), 4u);  // param, master, exp_avg, exp_avg_sq
    for (LayoutCase to : layouts()) {
      const RunPart loaded = run_part(to, 2, 2, scratch.path(), "");
      EXPECT_TRUE(loaded.tensors == saved.tensors) << from.name() << " -> " << to.name();
      EXPECT_EQ(loaded.replica, "") << from.name() << " -> " << to.name();
    }
  }
}

TEST(Checkpoints, LionGoesOnUnderAnyLayout) {
  const auto with_lion = [](LayoutCase c) {
    c.optimizer = "Lion";
    return c;
  };
  const ScratchDirectory scratch;
  const LayoutCase first = with_lion(gpt2_layout(2, 2, 3, true));
  const RunPart straight = run_part(first, 0, 4, "", "");
  const RunPart saved = run_part(first, 0, 2, "", scratch.path());
  EXPECT_EQ(saved.tensors.size(), 3u);  // param, master, exp_avg
  LayoutCase offloaded = gpt2_layout(1, 2, 1);
  offloaded.offload = OffloadDevice::kFile;
  for (const LayoutCase& c : {gpt2_layout(1, 4, 2), stages(gpt2_layout(1, 2, 3), 2), offloaded}) {
    const RunPart loaded = run_part(with_lion(c), 2, 2, scratch.path(), "");
    EXPECT_TRUE(loaded.tensors == saved.tensors) << c.name();
    EXPECT_EQ(loaded.replica, "") << c.name();
  }
  const RunPart resumed = run_part(first, 2, 4, scratch.path(), "");
  EXPECT_TRUE(resumed.tensors == straight.tensors);
  EXPECT_EQ(resumed.losses, (std::vector<double>{straight.losses[2], straight.losses[3]}));
}

TEST(Checkpoints, ContinuingUnderTheSameLayoutIsBitwiseTheSameRun) {
  for (const LayoutCase& c : {gpt2_layout(2, 2, 3, true), gpt2_layout(1, 4, 1),
                              gpt2_layout(1, 2, 2), stages(gpt2_layout(1, 2, 2), 2)}) {
    const ScratchDirectory scratch;
    const RunPart straight = run_part(c, 0, 4, "", "");
    run_part(c, 0, 2, "", scratch.path());
    const RunPart resumed = run_part(c, 2, 4, scratch.path(), "");
    EXPECT_TRUE(resumed.tensors == straight.tensors) << c.name();
    EXPECT_EQ(resumed.replica, "") << c.name();
    EXPECT_EQ(resumed.losses, (std::vector<double>{straight.losses[2], straight.losses[3]}));
  }
}

LayoutCase with_experts(const char* experts, int tp, int dp, int ep, int zero) {
  LayoutCase c = layout(dp, tp, 1, 1, zero);
  c.sizes.ep = ep;
  c.experts = experts;
  return c;
}

// State of routers between steps: selection biases, and the experts' shares of tokens.
TEST(Checkpoints, RoutersGoOnWithTheirBiasesAndShares) {
  for (const char* experts : {"deepseek", "mixtral"}) {
    const ScratchDirectory scratch;
    const LayoutCase c = with_experts(experts, 2, 1, 2, 0);
    const RunPart straight = run_part(c, 0, 3, "", "");
    const RunPart saved = run_part(c, 0, 2, "", scratch.path());
    EXPECT_TRUE(saved.tensors.contains("router"));
    const RunPart other = run_part(with_experts(experts, 1, 2, 1, 2), 2, 2, scratch.path(), "");
    EXPECT_TRUE(other.tensors == saved.tensors) << experts;
    const RunPart resumed = run_part(c, 2, 3, scratch.path(), "");
    EXPECT_TRUE(resumed.tensors == straight.tensors) << experts;
    EXPECT_EQ(resumed.losses.at(0), straight.losses.at(2)) << experts;
    for (const RunPart* part : {&straight, &saved, &other, &resumed})
      EXPECT_EQ(part->replica, "") << experts;
  }
}

}  // namespace
}  // namespace trireme::test::test_checkpoints
