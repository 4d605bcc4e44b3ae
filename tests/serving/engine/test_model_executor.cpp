// Sequences in a batch compared with the same ones alone, for models of several families and
// several layouts.
#include <gtest/gtest.h>

#include <random>

#include "serving/engine/generate.h"
#include "tests/serving/served_texts.h"

namespace trireme::test_model_executor {
namespace {

using test::kLength;
using test::Rank;
using test::served;
using test::Text;
using test::TextRequest;

// Prompts of 1 to 20 tokens, half of which share a prefix.
std::vector<TextRequest> requests_of(int count) {
  std::mt19937 random(7);
  std::vector<TextRequest> out;
  for (int n = 0; n < count; ++n) {
    TextRequest request;
    for (int i = 0; i < 12 && n % 2 == 0; ++i) request.prompt.push_back(5 + i);
    for (auto more = 1 + random() % 8; more > 0; --more)
      request.prompt.push_back(static_cast<int32_t>(random() % 37));
    request.count = 1 + static_cast<int64_t>(random() % 15);
    request.sampling.temperature = n % 3 == 0 ? 0 : 1;
    request.sampling.seed = random();
    out.push_back(std::move(request));
  }
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << what << " " << i;
}

std::vector<Text> alone(const ModelConfig& config, const std::vector<TextRequest>& requests) {
  std::vector<Text> texts;
  run_threads(1, [&](Communicator& world) {
    Rank rank(config, {}, world, DType::kF64);
    for (const TextRequest& request : requests) {
      GenerateOptions options;
      options.sampling = request.sampling;
      options.max_new_tokens = request.count;
      const Generation g = generate(rank.model, rank.store, rank.ctx, request.prompt, options);
      texts.push_back({g.tokens, g.logprobs, {}});
    }
  });
  return texts;
}

class Batches : public ::testing::TestWithParam<ModelFamily> {};

// Chunks of few tokens, cached prefixes, preempted sequences, log-probabilities of prompts.
TEST_P(Batches, WriteTheTextsOfSequencesAlone) {
  const ModelConfig config = test::tiny_model(GetParam());
  const std::vector<TextRequest> requests = requests_of(24);
  const std::vector<Text> want = alone(config, requests);
  for (const BatchingConfig& how :
       {BatchingConfig{.max_sequences = 8, .max_step_tokens = 64},
        BatchingConfig{.max_sequences = 4, .max_step_tokens = 7},
        BatchingConfig{.max_sequences = 8, .max_step_tokens = 16, .prefix_caching = false}})
    for (const bool prompt_logprobs : {false, true})
      run_threads(1, [&](Communicator& world) {
        Rank rank(config, {}, world, DType::kF64);
        const std::vector<Text> got = served(rank, requests, how, 18, prompt_logprobs);
        for (size_t i = 0; i < want.size(); ++i) {
          const std::string what = concat("text ", i, " of steps of ", how.max_step_tokens);
          EXPECT_EQ(got[i].tokens, want[i].tokens) << what;
          expect_near(got[i].logprobs, want[i].logprobs, what);
          EXPECT_EQ(got[i].prompt.size(), prompt_logprobs ? requests[i].prompt.size() - 1 : 0);
        }
      });
}

// The log-probability of a prompt's token equals that of the same token when it is generated.
TEST_P(Batches, TellThePromptsLogProbabilities) {
  const ModelConfig config = test::tiny_model(GetParam());
  TextRequest request;
  request.prompt = {3, 1, 4};
  request.count = 20;
  request.sampling.temperature = 0.7;
  const Text text = alone(config, {request}).front();
  request.prompt.insert(request.prompt.end(), text.tokens.begin(), text.tokens.end());
  request.count = 1;
  for (const int64_t tokens : {64, 5})
    run_threads(1, [&](Communicator& world) {
      Rank rank(config, {}, world, DType::kF64);
      const BatchingConfig how{.max_sequences = 2, .max_step_tokens = tokens};
      const std::vector<double> got = served(rank, {request}, how, 20, true).front().prompt;
      expect_near({got.begin() + 2, got.end()}, text.logprobs, "prompt");
    });
}

// More of them in one step than rows of logits fit on the host at a time.
TEST(ModelExecutor, ReportsALongPromptInOneStep) {
  ModelConfig config = test::tiny_model(ModelFamily::kLlama);
  config.max_positions = 320;
  TextRequest request;
  request.prompt.resize(300);
  request.count = 1;
  for (size_t i = 0; i < request.prompt.size(); ++i)
    request.prompt[i] = static_cast<int32_t>(i * i % 37);
  const auto logprobs_in_steps_of = [&](int tokens) {
    std::vector<double> logprobs;
    run_threads(1, [&](Communicator& world) {
      Rank rank(config, {}, world, DType::kF64, config.max_positions);
      const BatchingConfig how{
          .max_sequences = 2, .max_step_tokens = tokens, .max_model_len = config.max_positions};
      logprobs = served(rank, {request}, how, 80, true).front().prompt;
    });
    return logprobs;
  };
  const std::vector<double> whole = logprobs_in_steps_of(310), chunks = logprobs_in_steps_of(50);
  EXPECT_EQ(whole.size(), 299u);
  expect_near(whole, chunks, "prompt");
}

TEST_P(Batches, AreTheSameUnderEveryLayout) {
  ModelConfig config = test::tiny_model(GetParam());
  config.num_layers = 3;
  const std::vector<TextRequest> requests = requests_of(10);
  const std::vector<Text> want = alone(config, requests);
  for (const auto& [tp, pp] :
       {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2), std::pair(1, 3)}) {
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.pp = pp;
    run_threads(tp * pp, [&, tp = tp, pp = pp](Communicator& world) {
      Rank rank(config, sizes, world, DType::kF64);
      const BatchingConfig how{.max_sequences = 4, .max_step_tokens = 9};
      const std::vector<Text> got = served(rank, requests, how, 14, true);
      for (size_t i = 0; i < want.size(); ++i) {
        const std::string what = concat("tp ", tp, " pp ", pp, " rank ", world.rank(), " text ", i);
        EXPECT_EQ(got[i].tokens, want[i].tokens) << what;
        expect_near(got[i].logprobs, want[i].logprobs, what);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Batches,
    ::testing::Values(ModelFamily::kGpt2, ModelFamily::kLlama, ModelFamily::kMistral,
                      ModelFamily::kQwen3, ModelFamily::kDeepseekV3, ModelFamily::kGemma3,
                      ModelFamily::kMixtral, ModelFamily::kKimiK2, ModelFamily::kSmolLm3,
                      ModelFamily::kGranite, ModelFamily::kOlmo2, ModelFamily::kGlm4,
                      ModelFamily::kGptOss, ModelFamily::kGemma2, ModelFamily::kLlama4));

// A pass that throws leaves no state that affects the next one.
TEST(ModelExecutor, ComputesOnAfterAPassThatThrows) {
  run_threads(1, [](Communicator& world) {
    test::Rank rank(test::tiny_model(ModelFamily::kLlama), {}, world, DType::kF32);
    KvBlockPool pool(40, test::kBlockTokens, 1);
    const BatchingConfig how{.max_sequences = 4, .max_step_tokens = 24, .max_model_len = 40};
    Scheduler scheduler(how, pool);
    StepLimits limits{.tokens = 24, .sequences = 4, .length = 40, .blocks = 40};
    limits.block_tokens = test::kBlockTokens;
    ModelExecutor executor(rank.model, rank.store, rank.ctx, &rank.groups, {.limits = limits});
    EXPECT_TRUE(executor.survives_failures());
    const auto text = [&](int64_t fails_at) {
      auto params = std::make_shared<SamplingParams>();
      params->sampling.temperature = 0;
      const auto sequence = std::make_shared<Sequence>(
          SequenceRequest{.prompt = {1, 2, 3, 4, 5}, .sampling_params = params, .max_tokens = 12});
      scheduler.add(sequence);
      for (int64_t step = 0; !scheduler.idle(); ++step) {
        const SchedulerOutput plan = scheduler.next();
        int64_t seen = 0;
        rank.ctx.observer = [&](const char*, const ConstTensor&) {
          if (step == fails_at && ++seen == 3) throw Error("broken off");
        };
        try {
          scheduler.done(plan, executor.execute(plan));
        } catch (const Error&) {
          EXPECT_EQ(scheduler.failed(plan).size(), 1u);
        }
        rank.ctx.observer = {};
      }
      return sequence->tokens;
    };
    const std::vector<int32_t> want = text(-1);
    EXPECT_EQ(want.size(), 17u);
    EXPECT_EQ(text(0).size(), 5u);
    EXPECT_EQ(text(-1), want);
    EXPECT_EQ(text(3).size(), 8u);
    EXPECT_EQ(text(-1), want);
    EXPECT_EQ(pool.used(), 0);
  });
}

// Sampling seconds by sequence, which determine the turns (serving/scheduler/sampling_turns.h). The
// scheduler may be on any rank.
TEST(ModelExecutor, TimesTheChoices) {
  for (const int stages : {1, 2})
    run_threads(stages, [&](Communicator& world) {
      test::Rank rank(test::tiny_model(ModelFamily::kLlama), {.pp = stages}, world, DType::kF32);
      KvBlockPool pool(40, test::kBlockTokens, 1);
      Scheduler scheduler({.max_sequences = 4, .max_step_tokens = 4, .max_model_len = 40}, pool);
      StepLimits limits{.tokens = 4, .sequences = 4, .length = 40, .blocks = 40};
      limits.block_tokens = test::kBlockTokens;
      ModelExecutor executor(rank.model, rank.store, rank.ctx, &rank.groups, {.limits = limits});
      auto params = std::make_shared<SamplingParams>();
      scheduler.add(std::make_shared<Sequence>(
          SequenceRequest{.prompt = {1, 2, 3, 4, 5}, .sampling_params = params, .max_tokens = 2}));
      for (const bool samples : {false, true, true}) {  // four tokens of the prompt, the fifth, one
        const SchedulerOutput plan = scheduler.next();
        StepOutput outcome = executor.execute(plan);
        ASSERT_EQ(outcome.sampling_seconds.size(), 1u);
        EXPECT_EQ(outcome.sampling_seconds[0] > 0, samples) << "rank " << world.rank();
        if (samples) {
          EXPECT_GE(outcome.total_sampling_seconds,
                    static_cast<double>(outcome.sampling_seconds[0]));
        }
        scheduler.done(plan, std::move(outcome));
      }
      EXPECT_TRUE(scheduler.idle());
    });
}

// Memory planned before the cache exists suffices for steps of every kind: prompts, chunks of
// prompts, decoding, and log-probabilities of prompts.
TEST(LargestStep, IsPlannedBeforeTheCache) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kLlama4})
    for (const int stages : {1, 2}) {
      const ModelConfig config = test::tiny_model(family);
      run_threads(stages, [&](Communicator& world) {
        Rank rank(config, {.pp = stages}, world, DType::kF32);
        const StepLimits limits{.tokens = 24,
                                .sequences = 4,
                                .length = kLength,
                                .blocks = 1,
                                .block_tokens = test::kBlockTokens};
        const int64_t bytes =
            ModelExecutor(rank.model, rank.store, rank.ctx, &rank.groups, {.limits = limits})
                .largest_step_bytes();
        BatchingConfig batching;
        batching.max_sequences = 4;
        batching.max_step_tokens = 24;
        served(rank, requests_of(12), batching, 40, true);
        EXPECT_LE(rank.ctx.arena.capacity(), bytes);
        EXPECT_GT(rank.ctx.arena.capacity(), bytes / 2);
      });
    }
}

}  // namespace
}  // namespace trireme::test_model_executor
