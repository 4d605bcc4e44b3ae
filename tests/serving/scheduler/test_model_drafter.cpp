// Bookkeeping of a draft model: its inputs are the sequences, whether or not its draft tokens were
// accepted, and it never changes the output.
#include <gtest/gtest.h>

#include <random>

#include "serving/scheduler/model_drafter.h"
#include "serving/scheduler/scheduler.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test_model_drafter {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kVocabulary = 40;
constexpr int64_t kBlockTokens = 4;

// Draft model with the same output except for one token in `wrong_of`: a function of the cache's
// content, like RecordedTexts.
class Draft final : public StepExecutor {
 public:
  Draft(const DraftLimits& limits, int32_t wrong_of)
      : texts_(limits.blocks, limits.block_tokens, kVocabulary),
        limits_(limits),
        wrong_of_(wrong_of) {}

  StepOutput execute(const SchedulerOutput& plan) override {
    EXPECT_LE(std::ssize(plan.tokens), limits_.step_tokens);
    EXPECT_LE(std::ssize(plan.sequences), limits_.sequences);
    for (const SequenceStep& step : plan.sequences)
      EXPECT_LE(step.past + step.tokens, limits_.length);
    for (const SlotStart& start : plan.starts) {
      EXPECT_EQ(start.sampling_params->top_logprobs, -1);
      EXPECT_EQ(start.history.empty(), !start.sampling_params->needs_history());
    }
    StepOutput result = texts_.execute(plan);
    for (OutputToken& token : result.sampled)
      if (wrong_of_ > 0 && ++tokens_ % wrong_of_ == 0) token.id = (token.id + 1) % kVocabulary;
    return result;
  }

 private:
  test::RecordedTexts texts_;
  DraftLimits limits_;
  int32_t wrong_of_, tokens_ = 0;
};

struct Server {
  BatchingConfig config{
      .max_sequences = 6, .max_step_tokens = 40, .max_model_len = 90, .speculation = {.tokens = 4}};
  DraftLimits limits{
      .sequences = 6, .step_tokens = 12, .length = 90, .blocks = 150, .block_tokens = kBlockTokens};
  int64_t blocks = 150;
  int32_t wrong_of = 0;
  SamplingParams sampling_params = {};
  int64_t count = 40;
  int64_t used_blocks = -1;  // of the draft model, at the end

  // Sequences of all lengths, each compared with its expected output.
  SchedulerCounts run() {
    KvBlockPool pool(blocks, kBlockTokens, 7);
    auto owned = std::make_unique<ModelDrafter>(std::make_unique<Draft>(limits, wrong_of), limits);
    const ModelDrafter& drafter = *owned;
    Scheduler scheduler(config, pool, std::move(owned));
    test::RecordedTexts executor(blocks, kBlockTokens, kVocabulary);
    std::mt19937 random(3);
    std::vector<std::shared_ptr<Sequence>> all;
    std::vector<Ids> want;
    const auto shared = std::make_shared<SamplingParams>(sampling_params);
    for (int64_t n = 0; n < count; ++n) {
      SequenceRequest request{.prompt = {}, .sampling_params = shared};
      for (auto more = 1 + random() % 30; more > 0; --more)
        request.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
      request.max_tokens = static_cast<int64_t>(1 + random() % 59);
      Ids& text = want.emplace_back(request.prompt);
      for (int64_t i = 0; i < request.max_tokens; ++i)
        text.push_back(test::next_of(text, kVocabulary));
      all.push_back(std::make_shared<Sequence>(std::move(request)));
      scheduler.add(all.back());
    }
    int64_t steps = 0;
    while (!scheduler.idle()) {
      const SchedulerOutput plan = scheduler.next();
      // One is cancelled now and then.
      const auto leaves = static_cast<size_t>(steps / 10);
      if (++steps % 10 == 0 && leaves < all.size() && leaves % 4 == 0) {
        scheduler.cancel(*all[leaves]);
        want[leaves].resize(all[leaves]->tokens.size());
      }
      scheduler.done(plan, executor.execute(plan));
    }
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->tokens, want[i]) << i;
    EXPECT_EQ(pool.used(), 0);
    used_blocks = drafter.used_blocks();
    return scheduler.counts();
  }
};

// Any token at a wrong position of the draft model's cache makes its draft tokens wrong.
TEST(ModelDrafter, DraftsAllWhereItIsTheModel) {
  Server server;
  const SchedulerCounts counts = server.run();
  EXPECT_GT(counts.draft_tokens, 600);
  EXPECT_EQ(counts.accepted_tokens, counts.draft_tokens);
  EXPECT_EQ(server.used_blocks, 0);
}

// One draft token in four is wrong, so that those after it are wrong too; none of them may stay in
// the cache.
TEST(ModelDrafter, ForgetsWhatDidNotComeTrue) {
  Server server{.wrong_of = 4};
  const SchedulerCounts counts = server.run();
  EXPECT_GT(counts.draft_tokens, 600);
  const double accepted =
      static_cast<double>(counts.accepted_tokens) / static_cast<double>(counts.draft_tokens);
  // With independent errors: 3 / 4 + ... + (3 / 4)^4 of 4 tokens, or 0.51.
  EXPECT_GT(accepted, 0.4);
  EXPECT_LT(accepted, 0.8);
  EXPECT_EQ(server.used_blocks, 0);
}

TEST(ModelDrafter, GoesOnThroughPreemptionAndWithLittleRoom) {
  Server preempted;
  preempted.blocks = 60;
  const SchedulerCounts counts = preempted.run();
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(counts.draft_tokens, 300);
  EXPECT_EQ(counts.accepted_tokens, counts.draft_tokens);

  Server small;  // fewer slots and blocks than sequences need, and shorter texts
  small.limits.sequences = 3;
  small.limits.step_tokens = 3;
  small.limits.blocks = 25;
  small.limits.length = 50;
  const SchedulerCounts fewer = small.run();
  EXPECT_GT(fewer.draft_tokens, 50);
  EXPECT_EQ(fewer.accepted_tokens, fewer.draft_tokens);
  EXPECT_EQ(small.used_blocks, 0);
}

// Its sampler stores the tokens of a sequence with penalties: it gets them again.
TEST(ModelDrafter, ReportsTheTextWherePenaltiesActOnIt) {
  Server server{.wrong_of = 3};
  server.sampling_params.repetition_penalty = 1.1;
  server.sampling_params.top_logprobs = 3;
  EXPECT_GT(server.run().accepted_tokens, 100);
  EXPECT_EQ(server.used_blocks, 0);
}

TEST(ModelDrafter, DraftsNothingAfterTheEnd) {
  KvBlockPool pool(10, kBlockTokens, 7);
  const DraftLimits limits{
      .sequences = 1, .step_tokens = 2, .length = 30, .blocks = 10, .block_tokens = kBlockTokens};
  ModelDrafter drafter(std::make_unique<Draft>(limits, 0), limits);
  Ids text{1, 2, 3};
  for (int i = 0; i < 5; ++i) text.push_back(test::next_of(text, kVocabulary));
  auto params = std::make_shared<SamplingParams>();
  params->stop_token_ids = {text[5]};
  Sequence sequence({.prompt = {1, 2, 3}, .sampling_params = params, .max_tokens = 9});
  const std::vector<DraftRequest> requests{{&sequence, 5}};
  // Two tokens are read per call: after the first call there is no draft.
  EXPECT_EQ(drafter.propose(requests), std::vector<Ids>{Ids{}});
  EXPECT_EQ(drafter.propose(requests), (std::vector<Ids>{{text[3], text[4], text[5]}}));
  drafter.forget(sequence);
  EXPECT_EQ(drafter.used_blocks(), 0);
  drafter.forget(sequence);
}

// After steps without drafting, following draft tokens of which the first was accepted.
TEST(ModelDrafter, CatchesUpWithTextsThatWentOnOtherwise) {
  const DraftLimits limits{
      .sequences = 1, .step_tokens = 9, .length = 30, .blocks = 10, .block_tokens = kBlockTokens};
  ModelDrafter drafter(std::make_unique<Draft>(limits, 0), limits);
  Sequence sequence({.prompt = {1, 2, 3},
                     .sampling_params = std::make_shared<SamplingParams>(),
                     .max_tokens = 20});
  const std::vector<DraftRequest> requests{{&sequence, 5}};
  for (int round = 0; round < 2; ++round) {
    const Ids drafts = drafter.propose(requests).front();
    Ids text = sequence.tokens;
    for (int i = 0; i < 5; ++i) text.push_back(test::next_of(text, kVocabulary));
    EXPECT_EQ(drafts, Ids(text.end() - 5, text.end())) << round;
    sequence.tokens.push_back(drafts[0]);
    for (const int32_t other : {1, 0, 2, 0})
      sequence.tokens.push_back((drafts[1] + other) % kVocabulary);
  }
}

}  // namespace
}  // namespace trireme::test_model_drafter
