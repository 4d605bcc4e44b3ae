// Speculative decoding with models: the same output and the same distribution, in fewer steps.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/serving/engine/speculation_case.h"
#include "tests/serving/served_texts.h"

namespace trireme::test_speculation {
namespace {

using namespace test;  // NOLINT: the fixture's words are this file's vocabulary

// Bitwise equal in deterministic mode, on one or two pipeline stages, with few or many draft
// tokens.
TEST(SpeculativeDecoding, WritesTheSameTexts) {
  const std::vector<TextRequest> requests = speculation_requests(8, 11);
  for (const int pp : {1, 2}) {
    ParallelSizes sizes;
    sizes.pp = pp;
    run_threads(pp, [&](Communicator& world) {
      Rank rank(speculation_config(ModelFamily::kLlama, 11), sizes, world, DType::kF32, kMaxTokens);
      for (const int64_t tokens : {10, 128}) {
        BatchingConfig how{
            .max_sequences = 4, .max_step_tokens = tokens, .max_model_len = kMaxTokens};
        SchedulerCounts plain, drafted;
        const std::vector<Text> want = served(rank, requests, how, 120, false, true, &plain);
        how.speculation = {.tokens = 4, .prompt_lookup_max = 4, .prompt_lookup_min = 2};
        expect_same_texts(served(rank, requests, how, 120, false, true, &drafted), want);
        EXPECT_EQ(plain.draft_tokens, 0);
        EXPECT_GT(drafted.accepted_tokens, drafted.draft_tokens / 4);
        if (world.rank() == 0)
          std::printf("%lld stages, steps of %lld: %lld of %lld draft tokens accepted\n",
                      static_cast<long long>(pp), static_cast<long long>(tokens),
                      static_cast<long long>(drafted.accepted_tokens),
                      static_cast<long long>(drafted.draft_tokens));
      }
    });
  }
}

// Verification of draft tokens equals decoding token by token with experts, layers without rotary
// positions, scaled branches and logits, norms of all heads, positions on a part of the head.
TEST(SpeculativeDecoding, WritesTheSameTextsOfOtherFamilies) {
  const std::vector<TextRequest> requests = speculation_requests(8, 11);
  for (const ModelFamily family :
       {ModelFamily::kKimiK2, ModelFamily::kSmolLm3, ModelFamily::kGranite, ModelFamily::kOlmo2,
        ModelFamily::kGlm4, ModelFamily::kGptOss, ModelFamily::kGemma2, ModelFamily::kLlama4}) {
    run_threads(1, [&](Communicator& world) {
      SCOPED_TRACE(static_cast<int>(family));
      Rank rank(speculation_config(family, 11), {}, world, DType::kF32, kMaxTokens);
      BatchingConfig how{.max_sequences = 4, .max_step_tokens = 10, .max_model_len = kMaxTokens};
      const std::vector<Text> want = served(rank, requests, how, 120, false, true);
      SchedulerCounts drafted;
      how.speculation = {.tokens = 4, .prompt_lookup_max = 4, .prompt_lookup_min = 2};
      expect_same_texts(served(rank, requests, how, 120, false, true, &drafted), want);
      EXPECT_GT(drafted.accepted_tokens, 0);
    });
  }
}

// A draft model with the same parameters in bfloat16, whose probabilities nearly equal the model's;
// greedy sampling, random sampling, and sampling from fewer tokens.
TEST(SpeculativeDecoding, WritesTheSameTextsWithADraftModel) {
  std::vector<TextRequest> requests = speculation_requests(8, 37);
  requests[3].sampling.top_k = 5;
  requests[5].sampling.top_p = 0.8;
  run_threads(1, [&](Communicator& world) {
    const ModelConfig config = speculation_config(ModelFamily::kLlama, 37);
    Rank rank(config, {}, world, DType::kF32, kMaxTokens);
    Rank draft(config, {}, world, DType::kBF16, kMaxTokens);
    for (const int64_t tokens : {10, 128}) {
      BatchingConfig how{
          .max_sequences = 4, .max_step_tokens = tokens, .max_model_len = kMaxTokens};
      const std::vector<Text> want = served(rank, requests, how, 120, false, true);
      how.speculation = {.tokens = 4};
      SchedulerCounts counts;
      expect_same_texts(
          served(rank, requests, how, 60, false, true, &counts, test::drafter_of(draft, how)),
          want);
      EXPECT_GT(counts.draft_tokens, 200);
      EXPECT_GT(counts.accepted_tokens, counts.draft_tokens * 4 / 5);
      EXPECT_LT(counts.accepted_tokens, counts.draft_tokens);
      std::printf("steps of %lld: %lld of the draft's %lld draft tokens accepted\n",
                  static_cast<long long>(tokens), static_cast<long long>(counts.accepted_tokens),
                  static_cast<long long>(counts.draft_tokens));
    }
  });
}

// Probability of each token after a prompt.
std::vector<double> probabilities(Rank& rank, const std::vector<int32_t>& prompt,
                                  int64_t vocabulary) {
  std::vector<double> out(static_cast<size_t>(vocabulary));
  for (int32_t id = 0; id < vocabulary; ++id) {
    TextRequest request{.prompt = prompt, .count = 1, .sampling = {}};
    request.prompt.push_back(id);
    const BatchingConfig how{.max_sequences = 2, .max_step_tokens = 64};
    out[static_cast<size_t>(id)] =
        std::exp(served(rank, {request}, how, 20, true).front().prompt.back());
  }
  return out;
}

constexpr int64_t kFew = 5;  // tokens

// Completions of three tokens with draft tokens at the second and third: the pairs of the first two
// compared with their probabilities; the deviation has a chi-square distribution with V V - 1
// degrees of freedom.
void expect_the_distribution(Communicator& world, int count, bool model_drafts) {
  Rank rank(speculation_config(ModelFamily::kLlama, kFew), {}, world, DType::kF32, kMaxTokens);
  ModelConfig small = speculation_config(ModelFamily::kLlama, kFew);
  small.num_layers = 1;
  Rank draft(small, {}, world, DType::kF32, kMaxTokens);
  const std::vector<int32_t> prompt{0, 1, 2, 3, 4, 0, 1, 4, 2, 0, 3, 1, 0};
  std::vector<TextRequest> requests(static_cast<size_t>(count),
                                    {.prompt = prompt, .count = 3, .sampling = {}});
  for (size_t n = 0; n < requests.size(); ++n) requests[n].sampling.seed = n;
  BatchingConfig how{.max_sequences = 64, .max_step_tokens = 1024, .max_model_len = 20};
  how.speculation = {
      .tokens = 2, .prompt_lookup_max = 2, .prompt_lookup_min = 1, .max_running_sequences = 64};
  SchedulerCounts counts;
  const std::vector<Text> texts = served(rank, requests, how, 64 * 10, false, false, &counts,
                                         model_drafts ? test::drafter_of(draft, how) : nullptr);
  EXPECT_GT(counts.accepted_tokens, count / 20);
  EXPECT_LT(counts.accepted_tokens, counts.draft_tokens * 9 / 10);
  std::vector<double> seen(kFew * kFew);
  for (const Text& text : texts)
    ++seen[static_cast<size_t>(text.tokens[0] * kFew + text.tokens[1])];
  const std::vector<double> first = probabilities(rank, prompt, kFew);
  double deviation = 0;
  for (int32_t a = 0; a < kFew; ++a) {
    std::vector<int32_t> longer = prompt;
    longer.push_back(a);
    const std::vector<double> second = probabilities(rank, longer, kFew);
    for (size_t b = 0; b < kFew; ++b) {
      const double expected = count * first[static_cast<size_t>(a)] * second[b];
      const double error = seen[static_cast<size_t>(a) * kFew + b] - expected;
      deviation += error * error / expected;
    }
  }
  // Mean 24, standard deviation 6.9; one run in 30,000 exceeds 62.
  EXPECT_LT(deviation, 62);
  EXPECT_GT(deviation, 4);
  std::printf("chi-square %.1f with %lld degrees of freedom; %lld of %lld draft tokens accepted\n",
              deviation, static_cast<long long>(kFew * kFew - 1),
              static_cast<long long>(counts.accepted_tokens),
              static_cast<long long>(counts.draft_tokens));
}

TEST(SpeculativeDecoding, KeepsTheDistribution) {
  run_threads(1, [](Communicator& world) { expect_the_distribution(world, 50000, false); });
}

TEST(SpeculativeDecoding, KeepsTheDistributionWithADraftModel) {
  run_threads(1, [](Communicator& world) { expect_the_distribution(world, 20000, true); });
}

}  // namespace
}  // namespace trireme::test_speculation
