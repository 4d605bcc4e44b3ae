// Sequences of one tenant with slow sampling, next to those of another tenant.
#include <gtest/gtest.h>

#include <map>

#include "serving/scheduler/scheduler.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test_sampling_turns {
namespace {

constexpr int32_t kVocabulary = 50;
constexpr double kPlain = 0.001;  // seconds per token of plain sampling

// Server whose sampling and model take the test's seconds, on one thread.
struct TimedServer {
  explicit TimedServer(double model_seconds, bool prefix_caching = true)
      : model(model_seconds),
        pool(400, 4, 7),
        scheduler({.max_sequences = 64,
                   .max_step_tokens = 512,
                   .max_model_len = 400,
                   .prefix_caching = prefix_caching},
                  pool),
        texts(400, 4, kVocabulary) {}

  std::shared_ptr<SamplingParams> params_of(double seconds) {
    auto params = std::make_shared<SamplingParams>();
    seconds_of[params.get()] = seconds;
    return params;
  }
  std::shared_ptr<Sequence> add(const std::string& tenant,
                                std::shared_ptr<const SamplingParams> params,
                                std::vector<int32_t> prompt, int64_t max_tokens) {
    auto sequence = std::make_shared<Sequence>(SequenceRequest{.prompt = std::move(prompt),
                                                               .sampling_params = std::move(params),
                                                               .max_tokens = max_tokens,
                                                               .tenant = tenant});
    scheduler.add(sequence);
    return sequence;
  }
  // Seconds of the step; records the cost of sampling for each sequence.
  double step() {
    const SchedulerOutput plan = scheduler.next();
    for (const SlotStart& start : plan.starts) of_slot[start.slot] = start.sampling_params.get();
    StepOutput result = texts.execute(plan);
    sampled.clear();
    scored = 0;
    for (const SequenceStep& one : plan.sequences) {
      const SamplingParams* params = of_slot[one.slot];
      const int rows = (one.samples ? 1 : 0) + one.scored;
      result.sampling_seconds.push_back(static_cast<float>(rows * seconds_of[params]));
      result.total_sampling_seconds += rows * seconds_of[params];
      sampled[params] += one.samples ? 1 : 0;
      scored += one.scored;
    }
    const double seconds = model + result.total_sampling_seconds;
    (void)scheduler.done(plan, std::move(result));
    scheduler.report_step_seconds(seconds);
    return seconds;
  }

  double model;
  KvBlockPool pool;
  Scheduler scheduler;
  test::RecordedTexts texts;
  std::map<const SamplingParams*, double> seconds_of;
  std::map<int32_t, const SamplingParams*> of_slot;
  std::map<const SamplingParams*, int> sampled;
  int64_t scored = 0;
};

std::vector<int32_t> alone(std::vector<int32_t> text, int64_t count) {
  for (int64_t n = 0; n < count; ++n) text.push_back(test::next_of(text, kVocabulary));
  return text;
}

TEST(SamplingTurns, ATenantAloneNeverWaits) {
  TimedServer server(0.02);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.01);
  server.add("a", plain, {1, 2}, 40);
  for (int32_t i = 0; i < 8; ++i) server.add("a", costly, {3, i}, 40);
  for (int step = 0; step < 40; ++step) {
    server.step();
    EXPECT_EQ(server.sampled[costly.get()], 8);
  }
  EXPECT_TRUE(server.scheduler.idle());
}

TEST(SamplingTurns, CostlyChoicesHoldUpNoOtherTenant) {
  TimedServer server(0.1);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.01);
  const auto quiet = server.add("b", plain, {1, 2}, 120);
  std::vector<std::shared_ptr<Sequence>> loud;
  server.step();
  server.step();
  for (int32_t i = 0; i < 8; ++i) loud.push_back(server.add("a", costly, {3, i}, 30));
  server.step();  // the sampling cost is unknown before
  while (!server.scheduler.idle()) {
    const int64_t before = quiet->length();
    const double seconds = server.step();
    if (quiet->generated() < 120) {
      EXPECT_EQ(quiet->length(), before + 1) << "the other tenant waits";
      const double with_plain_params = 0.1 + 9 * kPlain;
      EXPECT_LE(seconds, (1 + SamplingTurns::kShare) * with_plain_params);
      EXPECT_LE(server.sampled[costly.get()], 4);
    }
    int64_t least = 30, most = 0;
    for (const auto& one : loud) {
      least = std::min(least, one->generated());
      most = std::max(most, one->generated());
    }
    EXPECT_LE(most - least, 2) << "turns go round";
  }
  EXPECT_EQ(quiet->tokens, alone({1, 2}, 120));
  for (int32_t i = 0; i < 8; ++i)
    EXPECT_EQ(loud[static_cast<size_t>(i)]->tokens, alone({3, i}, 30));
}

TEST(SamplingTurns, NobodyWaitsBesideALargeModel) {
  TimedServer server(1);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.01);
  server.add("b", plain, {1, 2}, 60);
  for (int32_t i = 0; i < 8; ++i) server.add("a", costly, {3, i}, 50);
  for (int step = 0; step < 50; ++step) {
    server.step();
    EXPECT_EQ(server.sampled[costly.get()], 8) << step;
  }
}

// At least one sequence gets a token in each step, however little time there is.
TEST(SamplingTurns, EveryTenantGoesOn) {
  TimedServer server(0.001);
  const auto plain = server.params_of(kPlain), costly = server.params_of(1);
  server.add("b", plain, {1, 2}, 200);
  for (const char* tenant : {"a", "c"})
    for (int32_t i = 0; i < 3; ++i) server.add(tenant, costly, {3, i}, 20);
  for (int step = 0; step < 3; ++step) server.step();
  for (int step = 0; step < 40; ++step) {
    server.step();
    EXPECT_EQ(server.sampled[costly.get()], 2);
    EXPECT_EQ(server.sampled[plain.get()], 1);
  }
}

// The choices of one request start together, once its prompt is in the cache.
TEST(SamplingTurns, ManyChoicesOfARequestBeginOneAfterTheOther) {
  TimedServer server(0.1);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.01);
  server.add("b", plain, {1, 2}, 200);
  server.add("a", costly, {3, 4}, 100);
  for (int step = 0; step < 3; ++step) server.step();
  for (int32_t i = 0; i < 16; ++i) server.add("a", costly, {3, i}, 10);
  for (int step = 0; step < 20; ++step)
    EXPECT_LE(server.step(),
              (1 + SamplingTurns::kShare) * (0.1 + 18 * kPlain) + 0.01);  // one starts
}

// Requests with other parameters and one token each: they are charged like the tenant's last ones.
TEST(SamplingTurns, FirstTokensCountAsTheTenantsLastOnes) {
  TimedServer server(0.1);
  server.add("b", server.params_of(kPlain), {1, 2}, 200);
  std::vector<std::shared_ptr<SamplingParams>> choices;
  for (int32_t i = 0; i < 48; ++i) choices.push_back(server.params_of(0.01));
  for (int step = 0; step < 3; ++step) server.step();
  for (int32_t i = 0; i < 8; ++i) server.add("a", choices[static_cast<size_t>(i)], {3, i}, 1);
  server.step();  // the very first ones
  for (int32_t i = 8; i < 48; ++i) server.add("a", choices[static_cast<size_t>(i)], {3, i}, 1);
  int steps = 0;
  for (; server.scheduler.counts().waiting > 0; ++steps) {
    ASSERT_LT(steps, 60);
    EXPECT_LE(server.step(), (1 + SamplingTurns::kShare) * (0.1 + 9 * kPlain) + 0.01);
  }
  EXPECT_GE(steps, 10);
}

// A slow sequence continues next to ever new short ones of its tenant.
TEST(SamplingTurns, OlderSequencesOfATenantAreNotOvertaken) {
  TimedServer server(0.02);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.01);
  server.add("b", plain, {1, 2}, 300);
  const auto old = server.add("a", costly, {3, 4}, 60);
  for (int step = 0; step < 3; ++step) server.step();
  const int64_t before = old->generated();
  for (int32_t step = 0; step < 100; ++step) {
    server.add("a", costly, {5, step % 40}, 3);
    server.step();
  }
  EXPECT_GE(old->generated() - before, 10);
}

TEST(SamplingTurns, LogProbabilitiesOfAPromptComeInParts) {
  TimedServer server(0.1);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.002);
  costly->prompt_logprobs = 20;
  server.add("b", plain, {1, 2}, 200);
  for (int step = 0; step < 3; ++step) server.step();
  const auto loud = server.add("a", costly, std::vector<int32_t>(300, 3), 2);
  int64_t in_all = 0;
  for (int step = 0; step < 60 && loud->generated() < 2; ++step) {
    server.step();
    EXPECT_LE(server.scored, 32);
    in_all += server.scored;
  }
  EXPECT_EQ(in_all, 299);
  EXPECT_EQ(loud->generated(), 2);
}

// Without a prefix cache to wait for, a sibling computes its prompt in one step.
TEST(SamplingTurns, SiblingsDoNotOvertakeLogProbabilitiesOfTheirPrompt) {
  TimedServer server(0.1, false);
  const auto plain = server.params_of(kPlain), costly = server.params_of(0.002);
  costly->prompt_logprobs = 20;
  server.add("b", plain, {1, 2}, 200);
  for (int step = 0; step < 3; ++step) server.step();
  const auto first = server.add("a", costly, std::vector<int32_t>(300, 3), 2);
  const auto sibling =
      std::make_shared<Sequence>(SequenceRequest{.prompt = std::vector<int32_t>(300, 3),
                                                 .sampling_params = plain,
                                                 .max_tokens = 2,
                                                 .tenant = "a",
                                                 .sibling = first});
  server.scheduler.add(sibling);
  for (int step = 0; step < 60 && sibling->generated() == 0; ++step) server.step();
  EXPECT_EQ(sibling->generated(), 1);
  EXPECT_EQ(first->scored, 299);
}

}  // namespace
}  // namespace trireme::test_sampling_turns
