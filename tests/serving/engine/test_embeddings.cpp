// Embeddings: independent of other sequences in the batch, and the head's input for the logits.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/serving/served_texts.h"

namespace trireme::test_embeddings {
namespace {

using test::kBlockTokens;
using test::kLength;
using test::Rank;

using Embeddings = std::vector<std::vector<float>>;

std::vector<std::vector<int32_t>> texts() {
  std::vector<std::vector<int32_t>> out;
  for (int32_t n = 0; n < 7; ++n) {
    std::vector<int32_t>& text = out.emplace_back(static_cast<size_t>(1 + 5 * n));
    for (size_t i = 0; i < text.size(); ++i)
      text[i] = static_cast<int32_t>((i * (i < 8 ? 3 : n + 2) + 1) % 37);
  }
  return out;
}

// Computed next to a running completion.
Embeddings embedded(Rank& rank, const BatchingConfig& how) {
  KvBlockPool pool(40, kBlockTokens, 1);
  Scheduler scheduler(how, pool);
  const StepLimits limits{.tokens = how.max_step_tokens,
                          .sequences = how.max_sequences,
                          .length = kLength,
                          .blocks = 40,
                          .block_tokens = kBlockTokens};
  ModelExecutor executor(rank.model, rank.store, rank.ctx, &rank.groups, {.limits = limits});
  const auto params = std::make_shared<SamplingParams>();
  scheduler.add(std::make_shared<Sequence>(
      SequenceRequest{.prompt = {1, 2, 3}, .sampling_params = params, .max_tokens = 20}));
  std::map<const Sequence*, size_t> number;
  for (std::vector<int32_t>& text : texts()) {
    const auto sequence = std::make_shared<Sequence>(
        SequenceRequest{.prompt = text, .sampling_params = params, .embeds = true});
    number.emplace(sequence.get(), number.size());
    scheduler.add(sequence);
  }
  Embeddings out(number.size());
  while (!scheduler.idle()) {
    const SchedulerOutput plan = scheduler.next();
    for (Progress& p : scheduler.done(plan, executor.execute(plan)))
      if (!p.embedding.empty()) out[number.at(p.sequence.get())] = std::move(p.embedding);
  }
  return out;
}

const BatchingConfig kWhole{.max_sequences = 8, .max_step_tokens = 200, .max_model_len = kLength};
const BatchingConfig kChunks{.max_sequences = 3, .max_step_tokens = 4, .max_model_len = kLength};

void expect_near(const Embeddings& got, const Embeddings& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t n = 0; n < want.size(); ++n) {
    ASSERT_EQ(got[n].size(), 24u);
    for (size_t i = 0; i < want[n].size(); ++i)
      EXPECT_NEAR(got[n][i], want[n][i], tolerance) << "text " << n << " element " << i;
  }
}

TEST(Embeddings, AreTheSameInChunksAndUnderEveryLayout) {
  ModelConfig config = test::tiny_model(ModelFamily::kLlama);
  config.num_layers = 3;
  Embeddings want;
  for (const auto& [tp, pp] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 3), std::pair(2, 2)}) {
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.pp = pp;
    run_threads(tp * pp, [&](Communicator& world) {
      Rank rank(config, sizes, world, DType::kF64);
      const Embeddings whole = embedded(rank, kWhole);
      if (world.size() == 1) want = whole;
      expect_near(whole, want, 1e-6);
      expect_near(embedded(rank, kChunks), want, 1e-6);
    });
  }
  EXPECT_NE(want[1], want[2]);
}

TEST(Embeddings, OfEveryTypeAreNearThoseOfFloat64) {
  Embeddings want;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    run_threads(1, [&](Communicator& world) {
      Rank rank(test::tiny_model(ModelFamily::kQwen3), {}, world, dtype);
      const Embeddings got = embedded(rank, kWhole);
      if (dtype == DType::kF64) want = got;
      expect_near(got, want, dtype == DType::kBF16 ? 0.2 : 1e-4);
    });
}

// The head's product with the embeddings gives the log-probabilities reported with the first token;
// a divisor of the logits is no part of an embedding.
class EmbeddingsOf : public ::testing::TestWithParam<ModelFamily> {};

TEST_P(EmbeddingsOf, AreWhatTheHeadTakes) {
  run_threads(1, [](Communicator& world) {
    Rank rank(test::tiny_model(GetParam()), {}, world, DType::kF64);
    const Embeddings got = embedded(rank, kWhole);
    const auto& specs = rank.model.parameters().specs();
    const auto head = std::ranges::find(specs, "lm_head.weight", &ParameterSpec::name);
    ASSERT_NE(head, specs.end());
    const Tensor w = rank.store.value(static_cast<ParamHandle>(head - specs.begin()));
    for (size_t n = 0; n < got.size(); ++n) {
      test::TextRequest request{.prompt = texts()[n], .count = 1, .sampling = {.temperature = 0}};
      const test::Text text = test::served(rank, {request}, kWhole, 20, false).front();
      std::vector<double> logits(37);
      double sum = 0;
      for (size_t v = 0; v < logits.size(); ++v) {
        for (size_t i = 0; i < 24; ++i)
          logits[v] += w.as<double>()[v * 24 + i] * static_cast<double>(got[n][i]);
        logits[v] /= rank.model.config().logits_divisor;
        sum += std::exp(logits[v]);
      }
      const double logprob = logits[static_cast<size_t>(text.tokens[0])] - std::log(sum);
      EXPECT_NEAR(text.logprobs[0], logprob, 1e-5) << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, EmbeddingsOf,
                         ::testing::Values(ModelFamily::kLlama, ModelFamily::kGranite));

}  // namespace
}  // namespace trireme::test_embeddings
