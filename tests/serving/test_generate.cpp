// Decoding with a KV cache against running the whole sequence again for every token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "serving/engine/generate.h"

namespace trireme {
namespace {

ModelConfig tiny(ModelFamily family) {
  ModelConfig c;
  c.family = family;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = family == ModelFamily::kLlama ? 2 : 4;
  c.head_dim = 6;
  c.max_positions = 32;
  c.initializer_range = 0.2;  // large enough that tokens differ
  c.attention_bias = c.mlp_bias = family == ModelFamily::kGpt2;
  c.tie_word_embeddings = family == ModelFamily::kGpt2;
  return c;
}

struct Fixture {
  explicit Fixture(ModelFamily family)
      : model(tiny(family), DType::kF32), store(model.parameters(), DType::kF32), ctx(2, "test") {
    store.allocate(false);
    store.initialize(5, 2);
  }
  Model model;
  ParameterStore store;
  Ctx ctx;
};

// The greedy continuation by prompts that grow: no cached state survives from token to token.
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

TEST_P(GenerateTest, CachedDecodingEqualsFullForward) {
  Fixture f(GetParam());
  const std::vector<int32_t> prompt = {3, 14, 15, 9, 2, 6};
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 12;
  const Generation cached = generate(f.model, f.store, f.ctx, prompt, options);
  EXPECT_EQ(cached.tokens, without_cache(f, prompt, 12));
  EXPECT_EQ(cached.logprobs.size(), 12u);
  EXPECT_EQ(cached.reason, StopReason::kLength);
  EXPECT_GT(std::ranges::count_if(cached.tokens, [&](int32_t t) { return t != cached.tokens[0]; }),
            0);
}

TEST_P(GenerateTest, StopsAtTheStopTokenTheContextAndTheCaller) {
  Fixture f(GetParam());
  const std::vector<int32_t> prompt = {1, 2, 3};
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 100;
  const Generation full = generate(f.model, f.store, f.ctx, prompt, options);
  EXPECT_EQ(full.reason, StopReason::kContextFull);
  EXPECT_EQ(full.tokens.size(), 29u);
  options.stop_token = full.tokens[4];
  const Generation stopped = generate(f.model, f.store, f.ctx, prompt, options);
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  EXPECT_LE(stopped.tokens.size(), 4u);
  options.stop_token = -1;
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
  EXPECT_THROW(generate(f.model, f.store, f.ctx, std::vector<int32_t>(32, 1), {}), InputError);
}

INSTANTIATE_TEST_SUITE_P(Families, GenerateTest,
                         ::testing::Values(ModelFamily::kGpt2, ModelFamily::kLlama));

}  // namespace
}  // namespace trireme
