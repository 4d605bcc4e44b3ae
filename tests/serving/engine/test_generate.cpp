// Decoding with a KV cache, compared with running the whole sequence again for every token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/core/error.h"
#include "parallel/comm/world.h"
#include "serving/engine/generate.h"
#include "tests/serving/tiny_model.h"
#include "transformer/pass/sharding.h"

namespace trireme::test_generate {
namespace {

struct Fixture {
  explicit Fixture(ModelFamily family)
      : ctx(2, "test"),
        model(test::tiny_model(family), DType::kF32),
        store(model.parameters(), DType::kF32) {
    model.reserve_positions(ctx, model.config().max_positions);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
  }
  Ctx ctx;
  Model model;
  ParameterStore store;
};

// Greedy completion by growing prompts: no state is cached between tokens, and attention over the
// prompts works as in training.
std::vector<int32_t> without_cache(Fixture& f, std::vector<int32_t> text, int64_t count) {
  std::vector<int32_t> out;
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 1;
  for (int64_t n = 0; n < count; ++n) {
    out.push_back(generate(f.model, f.store, f.ctx, text, options).tokens.at(0));
    text.push_back(out.back());
  }
  return out;
}

class GenerateTest : public ::testing::TestWithParam<ModelFamily> {};

// Blocks of 16 tokens: sequences that end inside the first block, at its end, in the second, and at
// the model's maximum; prompts of one token, which are a pass like the later ones, and of several.
TEST_P(GenerateTest, CachedDecodingEqualsFullForward) {
  Fixture f(GetParam());
  for (const std::vector<int32_t>& prompt :
       {std::vector<int32_t>{7}, {3, 14, 15, 9, 2, 6}, std::vector<int32_t>(20, 11)}) {
    const std::vector<int32_t> want = without_cache(f, prompt, 28);
    for (const int64_t count : {1, 9, 10, 15, 28}) {
      GenerateOptions options;
      options.sampling.temperature = 0;
      options.max_new_tokens = count;
      const Generation cached = generate(f.model, f.store, f.ctx, prompt, options);
      EXPECT_EQ(cached.tokens, std::vector(want.begin(), want.begin() + count))
          << prompt.size() << " and " << count;
      EXPECT_EQ(std::ssize(cached.logprobs), count);
      EXPECT_EQ(cached.reason, StopReason::kLength);
      if (count < 9) continue;
      const auto other = [&](int32_t t) { return t != cached.tokens[0]; };
      EXPECT_GT(std::ranges::count_if(cached.tokens, other), 0);
    }
  }
}

TEST_P(GenerateTest, StopsAtTheStopTokenTheContextAndTheCaller) {
  Fixture f(GetParam());
  const std::vector<int32_t> prompt = {1, 2, 3};
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 100;
  const Generation full = generate(f.model, f.store, f.ctx, prompt, options);
  EXPECT_EQ(full.reason, StopReason::kContextFull);
  EXPECT_EQ(full.tokens.size(),
            static_cast<size_t>(f.model.config().max_positions) - prompt.size());
  options.stop_tokens = {-1, full.tokens[4], full.tokens[2]};
  const Generation stopped = generate(f.model, f.store, f.ctx, prompt, options);
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  EXPECT_LE(stopped.tokens.size(), 4u);
  options.stop_tokens.clear();
  int calls = 0;
  generate(f.model, f.store, f.ctx, prompt, options, [&](int32_t) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
}

TEST_P(GenerateTest, ChoosesNoIdOfThePadding) {
  Fixture f(GetParam());
  const std::vector<int32_t> prompt = {1, 2, 3};
  GenerateOptions options;
  options.sampling.temperature = 2;
  const auto largest = [&] {
    const std::vector<int32_t> tokens = generate(f.model, f.store, f.ctx, prompt, options).tokens;
    return *std::ranges::max_element(tokens);
  };
  EXPECT_GE(largest(), 10);
  options.vocab_size = 10;
  EXPECT_LT(largest(), 10);
}

TEST_P(GenerateTest, RefusesEmptyAndOverlongPrompts) {
  Fixture f(GetParam());
  EXPECT_THROW(generate(f.model, f.store, f.ctx, {}, {}), InputError);
  EXPECT_THROW(
      generate(f.model, f.store, f.ctx,
               std::vector<int32_t>(static_cast<size_t>(f.model.config().max_positions), 1), {}),
      InputError);
}

// Layouts that share the model of `config`, with the same output on every rank.
struct Layouts {
  ModelConfig config;
  std::vector<ParallelSizes> sizes;
};

ParallelSizes sizes_of(int tp, int pp, int ep = 1, int etp = 1) {
  ParallelSizes sizes;
  sizes.tp = tp;
  sizes.pp = pp;
  sizes.ep = ep;
  sizes.etp = etp;
  return sizes;
}

std::vector<Generation> on_ranks(const ModelConfig& config, const ParallelSizes& sizes,
                                 const GenerateOptions& options,
                                 const std::function<void(GenerateOptions&, int)>& change = {}) {
  std::vector<Generation> all(static_cast<size_t>(world_size(sizes)));
  run_threads(world_size(sizes), [&](Communicator& world) {
    const Groups groups(world, sizes, kv_head_copies(config, sizes.tp));
    Model model(config, DType::kF32, groups.layout,
                chunks_of(split_layers(config.num_layers, sizes.pp, {}), groups.layout.pp));
    Ctx ctx(1, "test");
    model.reserve_positions(ctx, config.max_positions);
    ParameterStore store(model.parameters(), DType::kF32);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
    GenerateOptions mine = options;
    mine.groups = &groups;
    if (change) change(mine, world.rank());
    const std::vector<int32_t> prompt = {3, 14, 15, 9, 2, 6};
    all[static_cast<size_t>(world.rank())] = generate(model, store, ctx, prompt, mine);
  });
  return all;
}

void expect_the_text_of_one_rank(const Layouts& layouts) {
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions options;
    options.sampling.temperature = temperature;
    options.sampling.top_k = 20;
    options.sampling.seed = 11;
    options.max_new_tokens = 16;
    const Generation want = on_ranks(layouts.config, {}, options).front();
    ASSERT_EQ(want.tokens.size(), 16u);
    for (const ParallelSizes& sizes : layouts.sizes)
      for (const Generation& got : on_ranks(layouts.config, sizes, options)) {
        EXPECT_EQ(got.tokens, want.tokens) << describe(sizes) << ", temperature " << temperature;
        ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
        for (size_t i = 0; i < want.logprobs.size(); ++i)
          EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-4) << describe(sizes) << " token " << i;
      }
  }
}

// A vocabulary of 37 and two key/value heads: nothing divides evenly, and four ranks share the
// heads.
TEST_P(GenerateTest, RanksThatDivideTheModelWriteTheTextOfOne) {
  ModelConfig config = test::tiny_model(GetParam());
  config.num_layers = 3;
  expect_the_text_of_one_rank(
      {config, {sizes_of(2, 1), sizes_of(4, 1), sizes_of(1, 2), sizes_of(1, 3), sizes_of(2, 2)}});
}

TEST(GenerateExperts, RanksThatDivideTheExpertsWriteTheTextOfOne) {
  ModelConfig config = test::tiny_model(ModelFamily::kLlama);
  config.family = ModelFamily::kMixtral;
  config.moe.experts = 5;
  config.moe.experts_per_token = 2;
  config.moe.intermediate_size = 13;
  expect_the_text_of_one_rank({config,
                               {sizes_of(2, 1), sizes_of(2, 1, 2), sizes_of(2, 1, 1, 2),
                                sizes_of(4, 1, 2, 2), sizes_of(2, 2, 2)}});
}

// Different seeds play CPUs whose exp() differs: all ranks use one rank's sampled tokens and finish
// reason.
TEST(GenerateAgreement, OneRankChoosesForAll) {
  ModelConfig config = test::tiny_model(ModelFamily::kLlama);
  GenerateOptions options;
  options.sampling.temperature = 2;
  options.max_new_tokens = 16;
  const auto seed_of_rank = [](GenerateOptions& mine, int rank) {
    mine.sampling.seed = static_cast<uint64_t>(rank);
  };
  for (const ParallelSizes& sizes : {sizes_of(2, 1), sizes_of(1, 2), sizes_of(2, 2)}) {
    std::vector<std::vector<int32_t>> alone;
    for (int rank = 0; rank < world_size(sizes); ++rank) {
      seed_of_rank(options, rank);
      alone.push_back(on_ranks(config, {}, options).front().tokens);
    }
    const int sampler = (sizes.pp - 1) * sizes.tp;  // first tensor-parallel rank of the last stage
    const std::vector<int32_t>& want = alone[static_cast<size_t>(sampler)];
    ASSERT_EQ(std::ranges::count(alone, want), 1) << describe(sizes);
    for (const Generation& got : on_ranks(config, sizes, options, seed_of_rank))
      EXPECT_EQ(got.tokens, want) << describe(sizes);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerateTest,
                         ::testing::Values(ModelFamily::kGpt2, ModelFamily::kLlama,
                                           ModelFamily::kMistral, ModelFamily::kQwen3,
                                           ModelFamily::kDeepseekV3, ModelFamily::kGemma3,
                                           ModelFamily::kKimiK2, ModelFamily::kSmolLm3,
                                           ModelFamily::kGranite, ModelFamily::kOlmo2,
                                           ModelFamily::kGlm4, ModelFamily::kGptOss,
                                           ModelFamily::kGemma2, ModelFamily::kLlama4));

}  // namespace
}  // namespace trireme::test_generate
