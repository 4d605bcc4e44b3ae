// Exchanges that overlap with products: tensor-parallel exchanges of tokens
// (transformer/pass/tensor_parallel_mappings.h), and the experts' exchange with the shared experts
// (transformer/layers/moe.h). They give the results of the plain exchanges and send the same bytes.
#include <gtest/gtest.h>

#include "tests/layouts/layout_run.h"

namespace trireme::test::test_overlap {
namespace {

LayoutCase split_over(int tp, Overlap overlap) {
  LayoutCase c;
  c.sizes.tp = tp;
  c.sizes.sequence_parallel = true;
  c.sizes.tp_comm_overlap = overlap;
  return c;
}

LayoutResult run(LayoutCase c, Overlap overlap) {
  c.sizes.tp_comm_overlap = overlap;
  RunConfig config = config_of(c);
  config.train_steps = 2;
  LayoutRunOptions ring;  // counts all bytes as messages
  ring.comm.algorithm = CommAlgorithm::kRing;
  return run_training(config, c.packed, ring);
}

TEST(TensorOverlap, EqualsThePlainExchange) {
  LayoutCase llama, gpt2, packed, split_stages, experts;
  gpt2.llama = false;  // biases, learned positions
  gpt2.dropout = true;
  gpt2.recompute = Recompute::kSelective;
  packed.packed = true;
  packed.recompute = Recompute::kFull;
  split_stages.sizes.pp = 2;
  split_stages.schedule = "zb_h1";
  experts.experts = "qwen2_moe";
  experts.sizes.ep = 2;
  for (LayoutCase c : {llama, gpt2, packed, split_stages, experts})
    for (const int tp : {2, 4}) {
      c.sizes.tp = tp;
      c.sizes.sequence_parallel = true;
      const LayoutResult plain = run(c, Overlap::kOff);
      const LayoutResult overlapped = run(c, Overlap::kOn);
      EXPECT_EQ(layout_difference(overlapped, plain, c.dtype), "") << c.name();
      EXPECT_EQ(overlapped.traffic, plain.traffic) << c.name();
    }
}

// In dtypes in which sums are rounded.
TEST(TensorOverlap, EqualsThePlainExchangeInShortFloats) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    LayoutCase c = split_over(2, Overlap::kOn);
    c.dtype = dtype;
    EXPECT_EQ(layout_difference(run(c, Overlap::kOn), run(c, Overlap::kOff), dtype), "");
  }
}

// Number of point-to-point messages of rank 0 of `c` in one step.
int64_t messages(const LayoutCase& c) {
  int64_t calls = 0;
  on_ranks(config_of(c), {}, [&](LayoutRank& rank) {
    rank.train(0, false);
    if (rank.groups.world.rank() == 0) calls = rank.groups.tp->traffic()[CommKind::kSend].calls;
  });
  return calls;
}

TEST(TensorOverlap, MessagesAreOfOneShareEach) {
  for (const int tp : {2, 4}) {
    // Per layer: forward two gathers and two sums, backward one gather and one sum for each branch.
    LayoutCase c = split_over(tp, Overlap::kOn);
    const RunConfig config = config_of(c);
    const int64_t exchanges = 8 * config.model.num_layers * config.gradient_accumulation_steps;
    EXPECT_EQ(messages(c), exchanges * (tp - 1));
    c.sizes.tp_comm_overlap = Overlap::kOff;
    EXPECT_EQ(messages(c), 0);
    c.sizes.tp_comm_overlap = Overlap::kAuto;  // on the CPU
    EXPECT_EQ(messages(c), 0);
  }
}

// Bitwise equal: only the time of the exchange differs.
TEST(SharedExpertOverlap, EqualsThePlainExchange) {
  for (const char* experts : {"qwen2_moe", "deepseek"})
    for (const int etp : {1, 2}) {
      LayoutCase c;
      c.experts = experts;
      c.sizes.dp = c.sizes.tp = 2;
      c.sizes.sequence_parallel = etp == 2;
      c.sizes.ep = 2;
      c.sizes.etp = etp;
      c.sizes.moe_shared_overlap = Overlap::kOff;
      c.recompute = etp == 2 ? Recompute::kSelective : Recompute::kNone;
      const LayoutResult plain = run(c, Overlap::kOff);
      c.sizes.moe_shared_overlap = Overlap::kOn;
      const LayoutResult overlapped = run(c, Overlap::kOff);
      EXPECT_EQ(overlapped.losses, plain.losses) << c.name();
      EXPECT_TRUE(overlapped.gradients == plain.gradients) << c.name();
      EXPECT_EQ(overlapped.traffic, plain.traffic) << c.name();
      LayoutCase alone = reference_of(c);
      const LayoutResult want = run(alone, Overlap::kOff);
      EXPECT_EQ(layout_difference(overlapped, want, c.dtype), "") << c.name();
    }
}

}  // namespace
}  // namespace trireme::test::test_overlap
