// Deterministic mode: the results of a request have the same bits alone and under load.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>

#include "serving/engine/engine.h"
#include "tests/serving/served_texts.h"

namespace trireme::test_deterministic {
namespace {

using test::kBlockTokens;
using test::Rank;
using test::Text;
using test::TextRequest;

constexpr int64_t kMaxTokens = 96;

ModelConfig config_of(ModelFamily family) {
  ModelConfig config = test::tiny_model(family);
  config.max_positions = kMaxTokens;
  if (family == ModelFamily::kMistral) config.windows = {5, 5};  // no layer keeps all tokens
  return config;
}

// Prompts of 1 to 60 tokens, many with a shared prefix; greedy and random sampling in turn.
std::vector<TextRequest> requests_of(int count) {
  std::mt19937 random(11);
  std::vector<TextRequest> out;
  for (int n = 0; n < count; ++n) {
    TextRequest request;
    for (int i = 0; i < 10 * (n % 5); ++i) request.prompt.push_back((7 * i + n % 2) % 37);
    for (auto more = 1 + random() % 20; more > 0; --more)
      request.prompt.push_back(static_cast<int32_t>(random() % 37));
    request.count = 1 + static_cast<int64_t>(random() % 35);
    request.sampling.temperature = n % 2 == 0 ? 0 : 0.9;
    request.sampling.top_p = n % 4 == 1 ? 0.9 : 1;
    request.sampling.seed = random();
    out.push_back(std::move(request));
  }
  return out;
}

SequenceRequest request_of(const TextRequest& request, size_t number) {
  auto params = std::make_shared<SamplingParams>();
  params->sampling = request.sampling;
  params->top_logprobs = 2;
  params->prompt_logprobs = number % 8 == 3 ? 1 : -1;
  params->frequency_penalty = number % 8 == 5 ? 0.5 : 0;
  return {
      .prompt = request.prompt, .sampling_params = std::move(params), .max_tokens = request.count};
}

// Listeners on the engine's thread.
class TextRecorder {
 public:
  explicit TextRecorder(size_t count) : texts_(count), ended_(count) {}
  SequenceListener of(size_t i) {
    return [this, i](SequenceEvent&& event) {
      const std::lock_guard lock(mutex_);
      for (const OutputToken& token : event.prompt) texts_[i].prompt.push_back(token.logprob);
      for (const OutputToken& token : event.tokens) {
        texts_[i].tokens.push_back(token.id);
        texts_[i].logprobs.push_back(token.logprob);
        for (const TokenLogprob& top : token.top) texts_[i].logprobs.push_back(top.logprob);
      }
      ended_[i] = ended_[i] || event.finish.has_value();
      changed_.notify_all();
    };
  }
  void wait_for_end(size_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_[i]; });
  }
  void wait_for_token(size_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !texts_[i].tokens.empty() || ended_[i]; });
  }
  const std::vector<Text>& texts() const { return texts_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Text> texts_;
  std::vector<bool> ended_;
};

std::unique_ptr<Engine> engine_of(Rank& rank, BatchingConfig config, int64_t blocks) {
  config.max_model_len = kMaxTokens;
  const StepLimits limits{.tokens = config.max_step_tokens,
                          .sequences = config.max_sequences,
                          .length = kMaxTokens,
                          .blocks = blocks,
                          .block_tokens = kBlockTokens,
                          .windows = config.windows,
                          .kv_type = rank.kv_type,
                          .deterministic = true};
  auto executor = std::make_unique<ModelExecutor>(rank.model, rank.store, rank.ctx, &rank.groups,
                                                  ExecutorConfig{.limits = limits});
  return std::make_unique<Engine>(std::move(executor), config, blocks, kBlockTokens);
}

// One after the other, each prompt in one step, with an empty prefix cache that keeps the tokens
// before windows.
std::vector<Text> alone(Rank& rank, const std::vector<TextRequest>& requests) {
  const auto engine = engine_of(
      rank, {.max_sequences = 1, .max_step_tokens = kMaxTokens, .prefix_caching = false}, 24);
  TextRecorder recorder(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->add(request_of(requests[i], i), recorder.of(i));
    recorder.wait_for_end(i);
  }
  return recorder.texts();
}

// All at once, in chunks of few tokens, with a cache for 5/3 of the longest that drops what windows
// have passed; every fifth is cancelled before its end.
std::vector<Text> in_a_storm(Rank& rank, const std::vector<TextRequest>& requests) {
  const StepLimits limits{.tokens = 23,
                          .length = kMaxTokens,
                          .block_tokens = kBlockTokens,
                          .windows = kv_windows(rank.model.config(), kMaxTokens)};
  const auto engine = engine_of(
      rank, {.max_sequences = 16, .max_step_tokens = limits.tokens, .windows = limits.windows},
      5 * limits.blocks_of_sequence() / 3);
  TextRecorder recorder(requests.size());
  std::vector<SequenceId> ids;
  // All are there at the next step, however slow this thread is.
  engine->between_steps([&] {
    for (size_t i = 0; i < requests.size(); ++i)
      ids.push_back(engine->add(request_of(requests[i], i), recorder.of(i)));
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 5 != 4) continue;
    if (i % 2 == 0) recorder.wait_for_token(i);
    engine->cancel(ids[i]);
  }
  for (size_t i = 0; i < requests.size(); ++i)
    if (i % 5 != 4) recorder.wait_for_end(i);
  engine->between_steps([] {});
  const EngineCounts counts = engine->counts();
  EXPECT_EQ(counts.used_blocks, 0);
  EXPECT_EQ(counts.scheduler.running + counts.scheduler.waiting, 0);
  EXPECT_GT(counts.scheduler.preemptions, 0);
  EXPECT_GT(counts.scheduler.prefix_hits, 0);
  return recorder.texts();
}

void expect_same(const Text& got, const Text& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.logprobs, want.logprobs) << what;
  EXPECT_EQ(got.prompt, want.prompt) << what;
}

struct Kind {
  ModelFamily family;
  DType dtype;
  std::optional<KvType> kv_type = {};
};
constexpr KvType kInt8{DType::kU8, KvCodes::kInt8}, kE4M3{DType::kU8, KvCodes::kE4M3};

class Deterministic : public ::testing::TestWithParam<Kind> {};

TEST_P(Deterministic, AStormWritesTheTextsOfRequestsAlone) {
  const Kind kind = GetParam();
  const std::vector<TextRequest> requests = requests_of(64);
  run_threads(1, [&](Communicator& world) {
    Rank rank(config_of(kind.family), {}, world, kind.dtype, kMaxTokens);
    rank.kv_type = kind.kv_type;
    const std::vector<Text> want = alone(rank, requests), got = in_a_storm(rank, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::string what = concat("text ", i);
      ASSERT_EQ(std::ssize(want[i].tokens), requests[i].count) << what;
      if (i % 5 != 4) expect_same(got[i], want[i], what);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, Deterministic,
    ::testing::Values(
        Kind{ModelFamily::kLlama, DType::kF32}, Kind{ModelFamily::kLlama, DType::kBF16},
        Kind{ModelFamily::kGpt2, DType::kF32}, Kind{ModelFamily::kGpt2, DType::kF16},
        Kind{ModelFamily::kQwen3, DType::kF32}, Kind{ModelFamily::kGemma3, DType::kBF16},
        Kind{ModelFamily::kDeepseekV3, DType::kF32}, Kind{ModelFamily::kMixtral, DType::kBF16},
        Kind{ModelFamily::kKimiK2, DType::kBF16}, Kind{ModelFamily::kSmolLm3, DType::kF32},
        Kind{ModelFamily::kMistral, DType::kF32}, Kind{ModelFamily::kGranite, DType::kBF16},
        Kind{ModelFamily::kOlmo2, DType::kBF16}, Kind{ModelFamily::kGptOss, DType::kF32},
        Kind{ModelFamily::kGemma2, DType::kBF16, kInt8}, Kind{ModelFamily::kLlama4, DType::kF32},
        Kind{ModelFamily::kLlama, DType::kF32, kInt8},
        Kind{ModelFamily::kGemma3, DType::kBF16, kE4M3},
        Kind{ModelFamily::kDeepseekV3, DType::kF32, kInt8}));

// Models shared by several ranks: the same results with each layout.
TEST(DeterministicLayouts, WriteTheTextsOfRequestsAlone) {
  std::vector<TextRequest> requests = requests_of(12);
  struct Case {
    int tp, pp;
    std::optional<KvType> kv_type = {};
    ModelFamily family = ModelFamily::kLlama;
  };
  for (const auto& [tp, pp, kv_type, family] :
       {Case{2, 1}, {1, 2}, {2, 2}, {2, 2, kInt8}, {2, 2, {}, ModelFamily::kGemma3}}) {
    ModelConfig config = config_of(family);
    config.num_layers = 3;
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.pp = pp;
    run_threads(tp * pp, [&, kv_type = kv_type](Communicator& world) {
      Rank rank(config, sizes, world, DType::kF32, kMaxTokens);
      rank.kv_type = kv_type;
      const auto texts = [&](BatchingConfig how, int64_t blocks) {
        how.max_model_len = kMaxTokens;
        return test::served(rank, requests, how, blocks, false, true);
      };
      const std::vector<Text> want =
          texts({.max_sequences = 1, .max_step_tokens = kMaxTokens, .prefix_caching = false}, 24);
      const std::vector<int64_t> windows = kv_windows(config, kMaxTokens);
      const std::vector<Text> got = texts(
          {.max_sequences = 6, .max_step_tokens = 9, .windows = windows}, 30 * std::ssize(windows));
      for (size_t i = 0; i < requests.size(); ++i)
        expect_same(got[i], want[i], concat(sizes.tp, " tp ", sizes.pp, " pp, text ", i));
    });
  }
}

}  // namespace
}  // namespace trireme::test_deterministic
