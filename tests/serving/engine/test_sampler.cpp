#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "engine/core/error.h"
#include "serving/engine/sampler.h"

namespace trireme::test_sampler {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

// One sequence, with the logits above after each of its tokens.
class SequenceSampler {
 public:
  explicit SequenceSampler(const RowSamplingParams& sampling)
      : SequenceSampler(SamplingParams{.sampling = sampling}) {}
  explicit SequenceSampler(SamplingParams params, std::vector<int32_t> history = {},
                           int64_t prompt = 0)
      : sampler_(1, std::ssize(kLogits)) {
    if (params.top_logprobs < 0) params.top_logprobs = 0;
    SlotStart start;
    start.prompt_tokens = prompt;
    start.generated = std::ssize(history) - prompt;
    start.history = std::move(history);
    start.sampling_params = std::make_shared<const SamplingParams>(std::move(params));
    sampler_.start(start);
  }
  OutputToken sample(std::span<const float> logits, int64_t position,
                     const uint32_t* mask = nullptr) {
    return sampler_.sample(0, position, logits, mask);
  }
  OutputToken score(int32_t id) const { return sampler_.score(0, id, kLogits); }

 private:
  Sampler sampler_;
};

std::map<int32_t, int> draw(const RowSamplingParams& params, int count) {
  SequenceSampler sampler(params);
  std::map<int32_t, int> seen;
  for (int i = 0; i < count; ++i) ++seen[sampler.sample(kLogits, i).id];
  return seen;
}

TEST(Sampler, ZeroTemperatureTakesTheFirstLargest) {
  RowSamplingParams p;
  p.temperature = 0;
  const OutputToken token = SequenceSampler(p).sample(kLogits, 7);
  EXPECT_EQ(token.id, 1);
  double sum = 0;
  for (float l : kLogits) sum += std::exp(static_cast<double>(l));
  EXPECT_NEAR(token.logprob, 3.0 - std::log(sum), 1e-12);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  constexpr int kDraws = 20000;
  for (double temperature : {0.7, 1.0, 2.0}) {
    RowSamplingParams p;
    p.temperature = temperature;
    const auto seen = draw(p, kDraws);
    double sum = 0;
    for (float l : kLogits) sum += std::exp(l / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double want = std::exp(kLogits[i] / temperature) / sum;
      const auto found = seen.find(static_cast<int32_t>(i));
      const double got = found == seen.end() ? 0 : static_cast<double>(found->second) / kDraws;
      // Five standard deviations of a binomial proportion.
      EXPECT_NEAR(got, want, 5 * std::sqrt(want * (1 - want) / kDraws)) << "token " << i;
    }
  }
}

TEST(Sampler, TopKTopPAndMinPKeepWhatTheySay) {
  RowSamplingParams p;
  p.top_k = 2;
  EXPECT_EQ(draw(p, 500).size(), 2u);
  p = {};
  p.top_p = 0.3;  // tokens 1 and 3 hold 0.39 each
  EXPECT_EQ(draw(p, 500).size(), 1u);
  p.top_p = 0.6;
  EXPECT_EQ(draw(p, 500).size(), 2u);
  p = {};
  p.min_p = 0.2;  // exp(-1) = 0.37 is kept, exp(-2) = 0.14 is removed
  const auto seen = draw(p, 2000);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen.count(0), 0u);
}

TEST(Sampler, SameSeedSameTokensAndPositionsDiffer) {
  RowSamplingParams p;
  p.seed = 11;
  SequenceSampler a(p), b(p);
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t id = a.sample(kLogits, i).id;
    EXPECT_EQ(id, b.sample(kLogits, i).id);
    if (id != a.sample(kLogits, i + 1).id) ++changes;
  }
  EXPECT_GT(changes, 10);
}

TEST(Sampler, SequencesThatShareAChoiceDrawDifferently) {
  const auto tokens = [](uint64_t seed, uint64_t number) {
    auto params = std::make_shared<SamplingParams>();
    params->sampling.seed = seed;
    Sampler sampler(1, std::ssize(kLogits));
    SlotStart start;
    start.draw = number;
    start.sampling_params = params;
    sampler.start(start);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.sample(0, i, kLogits, nullptr).id);
    return ids;
  };
  EXPECT_NE(tokens(5, 0), tokens(5, 1));
  EXPECT_NE(tokens(5, 1), tokens(6, 0));
}

TEST(Sampler, NoSequenceOfARequestHasTheSeedOfAnother) {
  EXPECT_EQ(seed_of_draw(100, draw_of(0, 0)), 100u) << "of one text its request's own";
  std::set<uint64_t> seeds;
  for (uint64_t seed = 100; seed < 116; ++seed)
    for (size_t prompt = 0; prompt < 4; ++prompt)
      for (size_t choice = 0; choice < 128; ++choice)
        seeds.insert(seed_of_draw(seed, draw_of(prompt, choice)));
  EXPECT_EQ(seeds.size(), 16u * 4 * 128);
}

SamplingParams greedy() {
  SamplingParams params;
  params.sampling.temperature = 0;
  return params;
}

// The order of the sampled ids, when each one is forbidden afterwards, is the order of the logits.
TEST(Sampler, PenaltiesActOnWhatTheTextHolds) {
  SamplingParams params = greedy();
  params.presence_penalty = 1.5;
  SequenceSampler once(params);
  std::vector<int32_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(once.sample(kLogits, i).id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 2, 1}));  // 1.5, 1.5, 0.5 are left, and 1
  params.presence_penalty = 0;
  params.frequency_penalty = 0.75;  // grows with each occurrence
  SequenceSampler counted(params);
  ids.clear();
  for (int i = 0; i < 5; ++i) ids.push_back(counted.sample(kLogits, i).id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 1, 3, 2}));
}

TEST(Sampler, RepetitionPenaltyKnowsThePromptAndTheOthersDoNot) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  EXPECT_EQ(SequenceSampler(params, {1, 3}, 2).sample(kLogits, 2).id, 2);
  SamplingParams others = greedy();
  others.frequency_penalty = others.presence_penalty = 2;
  EXPECT_EQ(SequenceSampler(others, {1, 3}, 2).sample(kLogits, 2).id, 1);
  EXPECT_EQ(SequenceSampler(others, {1, 3}, 0).sample(kLogits, 2).id,
            2);  // as after preemption
  // Negative logits are multiplied by it; dividing would make them more likely.
  SamplingParams below = greedy();
  below.repetition_penalty = 2;
  const std::vector<float> negative = {-3.0f, -1.0f, -1.5f, -3.0f, -3.0f};
  EXPECT_EQ(SequenceSampler(below, {1}, 1).sample(negative, 1).id, 2);
}

TEST(Sampler, BiasMaskMinimumAndWordsForbidOrFavour) {
  SamplingParams params = greedy();
  params.logit_bias = {{4, 5.0}};
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0).id, 4);
  params = greedy();
  params.logit_bias = {{1, -100.0}, {3, -100.0}, {900, 1.0}};
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0).id, 2);
  const uint32_t mask = 0b10001;
  EXPECT_EQ(SequenceSampler(greedy()).sample(kLogits, 0, &mask).id, 0);
  params = greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {1, 3};
  SequenceSampler patient(params);
  EXPECT_EQ(patient.sample(kLogits, 0).id, 2);
  EXPECT_EQ(patient.sample(kLogits, 1).id, 2);
  EXPECT_EQ(patient.sample(kLogits, 2).id, 1);
  params = greedy();
  params.bad_words = {{3}, {2, 1}};
  EXPECT_EQ(SequenceSampler(params, {0}, 1).sample(kLogits, 1).id, 1);
  EXPECT_EQ(SequenceSampler(params, {0, 2}, 2).sample(kLogits, 2).id, 2);
}

TEST(Sampler, LogProbabilitiesAreTheModelsWhateverIsForbidden) {
  double sum = 0;
  for (const float l : kLogits) sum += std::exp(static_cast<double>(l));
  SamplingParams params = greedy();
  params.top_logprobs = 2;
  params.prompt_logprobs = 3;
  params.logit_bias = {{1, -100.0}, {3, -100.0}};
  SequenceSampler sampler(params);
  const OutputToken token = sampler.sample(kLogits, 0);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, 2.0 - std::log(sum), 1e-12);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].id, 1);  // ties in the order of ids
  EXPECT_EQ(token.top[1].id, 3);
  EXPECT_NEAR(token.top[1].logprob, 3.0 - std::log(sum), 1e-12);
  const OutputToken scored = sampler.score(4);
  EXPECT_NEAR(scored.logprob, -1.0 - std::log(sum), 1e-12);
  EXPECT_EQ(scored.top.size(), 3u);
  EXPECT_EQ(scored.rank, 5);
  EXPECT_EQ(sampler.score(1).rank, 1);
  EXPECT_EQ(sampler.score(3).rank, 2);  // the same logit with a higher id
}

TEST(Sampler, SaysWhereLogitsAreNotFiniteAndWhereNothingIsAllowed) {
  const std::vector<float> bad = {1.0f, std::nanf(""), 0.0f, 0.0f, 0.0f};
  EXPECT_EQ(SequenceSampler(greedy()).sample(bad, 0).id, kNotFinite);
  const uint32_t nothing = 0;
  EXPECT_EQ(SequenceSampler(greedy()).sample(kLogits, 0, &nothing).id, kNothingLeft);
}

// Each one allows some tokens, all together none.
TEST(Sampler, SaysWhereARequestForbidsAllTokens) {
  const uint32_t mask = 0b01110;
  SamplingParams params = greedy();
  params.bad_words = {{1}, {2}};
  params.logit_bias = {{2, 100.0}};
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0, &mask).id, 3);
  params.stop_token_ids = {3};
  params.min_tokens = 1;
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0).id, 0);
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0, &mask).id, kNothingLeft);
  params.sampling.temperature = 1;
  EXPECT_EQ(SequenceSampler(params).sample(kLogits, 0, &mask).id, kNothingLeft);
  // NaN logits are the model's fault, not the request's.
  EXPECT_EQ(SequenceSampler(params).sample(std::vector<float>(5, std::nanf("")), 0).id, kNotFinite);
}

TEST(Sampler, RefusesParametersOutOfRange) {
  const auto refused = [](auto set) {
    RowSamplingParams p;
    set(p);
    EXPECT_THROW(check_sampling_params(p), InputError);
  };
  refused([](auto& p) { p.temperature = -1; });
  refused([](auto& p) { p.temperature = std::nan(""); });
  refused([](auto& p) { p.top_k = -1; });
  refused([](auto& p) { p.top_p = 0; });
  refused([](auto& p) { p.top_p = 1.5; });
  refused([](auto& p) { p.min_p = -0.1; });
}

}  // namespace
}  // namespace trireme::test_sampler
