// The loss of an evaluation is the same with every layout as on one rank, in float64.
#include <gtest/gtest.h>

#include <set>

#include "parallel/comm/world.h"
#include "training/data/batch_fill.h"
#include "training/eval/evaluate.h"
#include "transformer/pass/sharding.h"

namespace trireme::test_evaluate {
namespace {

constexpr int64_t kLength = 13;  // nothing divides it

ModelConfig small(bool experts) {
  ModelConfig c;
  c.family = experts ? ModelFamily::kMixtral : ModelFamily::kLlama;
  c.vocab_size = 29;
  c.hidden_size = 16;
  c.intermediate_size = 22;
  c.num_layers = 3;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.max_positions = 16;
  c.initializer_range = 0.2;
  if (!experts) return c;
  c.moe.experts = 5;
  c.moe.experts_per_token = 2;
  c.moe.intermediate_size = 7;
  return c;
}

// Seven samples; the last has few targets.
class Samples final : public BatchSource {
 public:
  int64_t num_samples() const override { return 7; }
  int64_t num_targets() const override { return 6 * kLength + 2; }
  void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) override {
    BatchFillOptions options;
    options.sequence_length = kLength;
    options.vocab_size = 29;
    BatchFill out(options, batch, std::ssize(samples));
    std::vector<int32_t> tokens(kLength + 1);
    for (const int64_t sample : samples) {
      if (sample < 7) seen_.insert(sample);
      for (int64_t t = 0; t <= kLength; ++t)
        tokens[static_cast<size_t>(t)] = static_cast<int32_t>((sample * sample + 5 * t * t) % 29);
      const int64_t given = sample < 6 ? kLength + 1 : sample == 6 ? 3 : 0;
      out.add(tokens.data(), given, sample, "samples");
    }
    out.finish();
  }
  std::string describe() const override { return "samples"; }
  const std::set<int64_t>& seen() const { return seen_; }

 private:
  std::set<int64_t> seen_;
};

// Results of every rank.
std::vector<EvalResult> evaluate(const ModelConfig& config, const ParallelSizes& sizes,
                                 int64_t max_samples = 0, std::set<int64_t>* seen = nullptr) {
  std::vector<EvalResult> results(static_cast<size_t>(world_size(sizes)));
  run_threads(world_size(sizes), [&](Communicator& world) {
    const Groups groups(world, sizes, kv_head_copies(config, sizes.tp));
    Model model(config, DType::kF64, groups.layout,
                chunks_of(split_layers(config.num_layers, sizes.pp, {}), groups.layout.pp));
    Ctx ctx(1, "test");
    model.reserve_positions(ctx, kLength);
    ParameterStore store(model.parameters(), DType::kF64);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
    Evaluator evaluator(model, store, groups, ctx, 2, kLength);
    const ArenaPlan plan = evaluator.plan();
    ctx.arena.reserve(plan.capacity);
    Samples samples;
    results[static_cast<size_t>(world.rank())] = evaluator.run(samples, max_samples, plan);
    if (seen != nullptr) *seen = samples.seen();
  });
  return results;
}

struct Case {
  int tp = 1, pp = 1, cp = 1, dp = 1, ep = 1, etp = 1;
  bool sequence_parallel = false;
  ContextCommType comm_type = ContextCommType::kP2P;
  ContextBalance balance = ContextBalance::kZigzag;
};

ParallelSizes sizes_of(const Case& c, const ModelConfig& config) {
  ParallelSizes sizes;
  sizes.tp = c.tp;
  sizes.pp = c.pp;
  sizes.cp = c.cp;
  sizes.dp = c.dp;
  sizes.ep = c.ep;
  sizes.etp = c.etp;
  sizes.sequence_parallel = c.sequence_parallel;
  sizes.cp_balance = c.balance;
  sizes.cp_ulysses = ulysses_ranks(c.comm_type, c.cp, config.num_heads / c.tp);
  return sizes;
}

void expect_the_loss_of_one_rank(const ModelConfig& config, const std::vector<Case>& cases) {
  const EvalResult want = evaluate(config, {}).front();
  EXPECT_EQ(want.tokens, 6 * kLength + 2);
  EXPECT_GT(want.loss, 1.0);
  for (const Case& c : cases) {
    const ParallelSizes sizes = sizes_of(c, config);
    for (const EvalResult& got : evaluate(config, sizes)) {
      EXPECT_EQ(got.tokens, want.tokens) << describe(sizes);
      EXPECT_NEAR(got.loss / want.loss, 1.0, 1e-12) << describe(sizes);
    }
  }
}

TEST(Evaluate, EveryLayoutGivesTheLossOfOneRank) {
  const auto a2a = ContextCommType::kA2A, both = ContextCommType::kA2AP2P;
  expect_the_loss_of_one_rank(
      small(false), {{.dp = 3},
                     {.tp = 2, .pp = 3, .sequence_parallel = true},
                     {.cp = 2},
                     {.cp = 4},
                     {.cp = 2, .balance = ContextBalance::kContiguous},
                     {.cp = 4, .comm_type = a2a},
                     {.cp = 4, .comm_type = both},
                     {.cp = 2, .comm_type = a2a, .balance = ContextBalance::kContiguous},
                     {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true, .comm_type = a2a},
                     {.pp = 2, .cp = 2, .dp = 2}});
}

TEST(Evaluate, EveryDivisionOfExpertsGivesTheLossOfOneRank) {
  expect_the_loss_of_one_rank(
      small(true), {{.dp = 2, .ep = 2},
                    {.dp = 2, .etp = 2},
                    {.cp = 2, .ep = 2},
                    {.tp = 2, .cp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
                    {.pp = 3, .dp = 2, .ep = 2},
                    {.pp = 2, .cp = 2, .dp = 2, .ep = 4, .comm_type = ContextCommType::kA2A}});
}

TEST(Evaluate, APartOfTheSamplesIsSpreadOverAllInEveryLayout) {
  std::set<int64_t> seen;
  const EvalResult want = evaluate(small(false), {}, 3, &seen).front();
  EXPECT_EQ(seen, (std::set<int64_t>{0, 2, 4}));  // floor(k * 7 / 3)
  EXPECT_EQ(want.samples, 3);
  EXPECT_EQ(want.all_samples, 7);
  EXPECT_EQ(want.tokens, 3 * kLength);
  for (const Case& c : {Case{.dp = 3}, Case{.pp = 3}, Case{.cp = 2, .dp = 2}}) {
    const ParallelSizes sizes = sizes_of(c, small(false));
    for (const EvalResult& got : evaluate(small(false), sizes, 3)) {
      EXPECT_EQ(got.tokens, want.tokens) << describe(sizes);
      EXPECT_NEAR(got.loss / want.loss, 1.0, 1e-12) << describe(sizes);
    }
  }
}

}  // namespace
}  // namespace trireme::test_evaluate
