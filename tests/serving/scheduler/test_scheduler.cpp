// A sequence's output does not depend on other sequences, whatever the scheduler does with it.
#include <gtest/gtest.h>

#include <random>

#include "engine/core/error.h"
#include "tests/serving/scheduler/slow_rule.h"
#include "tests/serving/scheduler/text_server.h"

namespace trireme::test_scheduler {
namespace {

using test::alone;
using test::kVocabulary;
using test::prompt_of;
using test::SlowRule;
using Server = test::TextServer;

BatchingConfig config_of(int64_t sequences, int64_t tokens, int64_t length) {
  return {.max_sequences = sequences, .max_step_tokens = tokens, .max_model_len = length};
}

TEST(Scheduler, ComputesAPromptInChunksThenATokenAStep) {
  Server server(config_of(2, 5, 40), 20);
  server.max_step_tokens = 5;
  const auto s = server.add(prompt_of(12, 3), 4);
  server.run();
  EXPECT_EQ(s->tokens, alone(prompt_of(12, 3), 4));
  EXPECT_EQ(server.steps, 3 + 3);  // the prompt's last chunk gives the first token
  EXPECT_EQ(server.reasons.at(s.get()), FinishReason::kLength);
}

TEST(Scheduler, DecodesBesideAPromptInChunks) {
  Server server(config_of(2, 4, 60), 40);
  server.max_step_tokens = 4;
  const auto a = server.add(prompt_of(2, 1), 20);
  server.step();
  const auto b = server.add(prompt_of(30, 2), 2);
  for (int n = 0; n < 5; ++n) server.step();
  EXPECT_EQ(a->generated(), 6);  // one token per step
  EXPECT_EQ(b->computed, 15);    // and the rest of the budget
  server.run();
  EXPECT_EQ(a->tokens, alone(prompt_of(2, 1), 20));
  EXPECT_EQ(b->tokens, alone(prompt_of(30, 2), 2));
}

TEST(Scheduler, PreemptsTheLastWhereBlocksRunOut) {
  Server server(config_of(4, 32, 64), 16);
  const auto a = server.add(prompt_of(8, 1), 40), b = server.add(prompt_of(8, 2), 40);
  server.run();
  EXPECT_GT(server.scheduler.counts().preemptions, 0);
  EXPECT_EQ(a->tokens, alone(prompt_of(8, 1), 40));
  EXPECT_EQ(b->tokens, alone(prompt_of(8, 2), 40));
  EXPECT_EQ(server.ended.front(), a.get());
}

TEST(Scheduler, HigherPriorityComesFirstAndIsPreemptedLast) {
  Server server(config_of(1, 8, 40), 10);
  const auto low = server.add(prompt_of(4, 1), 3, 5), high = server.add(prompt_of(4, 2), 3, -1);
  server.run();
  EXPECT_EQ(server.ended, (std::vector<Sequence*>{high.get(), low.get()}));

  Server tight(config_of(2, 8, 40), 10);
  const auto first = tight.add(prompt_of(4, 1), 30, 1);
  tight.step();
  const auto second = tight.add(prompt_of(4, 2), 30, 0);
  tight.run();
  EXPECT_EQ(tight.ended.front(), second.get());
  EXPECT_GT(first->starts, 1u);
  EXPECT_EQ(first->tokens, alone(prompt_of(4, 1), 30));
}

TEST(Scheduler, FindsTheBeginningOfAPromptInTheCache) {
  Server server(config_of(2, 64, 64), 32);
  server.add(prompt_of(21, 1), 2);
  server.run();
  const int64_t before = server.executor.tokens;
  const auto again = server.add(prompt_of(21, 1), 2);
  server.run();
  EXPECT_EQ(again->cached_prompt, 20);
  EXPECT_EQ(server.executor.tokens - before, 2);
  EXPECT_EQ(again->tokens, alone(prompt_of(21, 1), 2));
  // All of the prompt is cached, but its last block is computed again because its logits are
  // needed.
  const auto whole = server.add(prompt_of(20, 1), 1);
  server.run();
  EXPECT_EQ(whole->cached_prompt, 16);
  const auto other = server.add(prompt_of(21, 1), 2, 0, "tenant");
  server.run();
  EXPECT_EQ(other->cached_prompt, 0);
  EXPECT_EQ(other->tokens, again->tokens);
  EXPECT_EQ(server.scheduler.counts().prefix_queries, 21 + 21 + 20 + 21);
  EXPECT_EQ(server.scheduler.counts().prefix_hits, 20 + 16);
}

TEST(Scheduler, SiblingsWaitForTheFirstToFillTheCache) {
  Server server(config_of(4, 8, 64), 64);
  const auto first = server.add(prompt_of(30, 1), 5);
  std::vector<std::shared_ptr<Sequence>> others;
  for (int n = 0; n < 3; ++n) {
    SequenceRequest request{
        .prompt = prompt_of(30, 1), .sampling_params = server.sampling_params, .max_tokens = 5};
    request.sibling = first;
    others.push_back(std::make_shared<Sequence>(std::move(request)));
    server.scheduler.add(others.back());
  }
  server.run();
  for (const auto& s : others) {
    EXPECT_EQ(s->cached_prompt, 28);
    EXPECT_EQ(s->tokens, first->tokens);
  }
  EXPECT_EQ(server.executor.tokens, 30 + 4 + 3 * (2 + 4));
}

// Choices echo the prompt from the log-probabilities of the first one, whose token may wait for its
// mask for long.
TEST(Scheduler, PromptLogprobsComeBeforeAnyTokenOfASibling) {
  for (const bool caching : {true, false}) {
    BatchingConfig config = config_of(4, 8, 64);
    config.prefix_caching = caching;
    Server server(config, 64);
    const auto stuck = std::make_shared<SlowRule>(), quick = std::make_shared<SlowRule>();
    stuck->masks = 1;
    quick->masks = 100;
    auto scored = std::make_shared<SamplingParams>();
    scored->prompt_logprobs = 0;
    const auto first = std::make_shared<Sequence>(SequenceRequest{
        .prompt = prompt_of(11, 1), .sampling_params = scored, .max_tokens = 5, .rule = stuck});
    const auto sibling =
        std::make_shared<Sequence>(SequenceRequest{.prompt = prompt_of(11, 1),
                                                   .sampling_params = server.sampling_params,
                                                   .max_tokens = 5,
                                                   .sibling = first,
                                                   .rule = quick});
    server.scheduler.add(first);
    server.scheduler.add(sibling);
    size_t reported = 0;
    for (int step = 0; step < 20 && sibling->state != Sequence::State::kEnded; ++step) {
      const SchedulerOutput plan = server.scheduler.next();
      ASSERT_FALSE(plan.empty());
      for (const Progress& p : server.scheduler.done(plan, server.executor.execute(plan))) {
        reported += p.prompt.size();
        if (p.sequence == first) {
          EXPECT_TRUE(p.tokens.empty()) << "its mask is not ready";
        } else {
          EXPECT_EQ(reported, 10u) << caching;
        }
      }
    }
    EXPECT_EQ(sibling->generated(), 4);
    stuck->masks = 2;
    const std::vector<Progress> settled = server.scheduler.settle();
    ASSERT_EQ(settled.size(), 1u);
    EXPECT_TRUE(settled[0].prompt.empty());
    EXPECT_EQ(settled[0].tokens.size(), 1u);
  }
}

TEST(Scheduler, EndsAtAStopTokenIdOnceEnoughTokensAreThere) {
  const std::vector<int32_t> text = alone(prompt_of(6, 1), 10);
  for (const int64_t least : {0, 5}) {
    Server server(config_of(1, 16, 40), 10);
    server.sampling_params->stop_token_ids = {text[6 + 2], text[6 + 7]};
    server.sampling_params->min_tokens = least;
    const auto s = server.add(prompt_of(6, 1), 10);
    server.run();
    EXPECT_EQ(s->generated(), least == 0 ? 3 : 8);
    EXPECT_EQ(server.reasons.at(s.get()), FinishReason::kStop);
  }
}

TEST(Scheduler, EndsAtTheModelsLength) {
  Server server(config_of(1, 16, 11), 3);
  const auto s = server.add(prompt_of(6, 1), 100);
  server.run();
  EXPECT_EQ(s->length(), 11);
  EXPECT_EQ(server.reasons.at(s.get()), FinishReason::kLength);
}

TEST(Scheduler, EndsWithAnErrorWhereLogitsAreNotFinite) {
  Server server(config_of(2, 16, 40), 20);
  const auto bad = server.add(prompt_of(6, 1), 5), good = server.add(prompt_of(6, 2), 5);
  const SchedulerOutput plan = server.scheduler.next();
  StepOutput result = server.executor.execute(plan);
  result.sampled[0].id = -1;
  const std::vector<Progress> progress = server.scheduler.done(plan, std::move(result));
  ASSERT_EQ(progress.size(), 2u);
  EXPECT_EQ(progress[0].finish, FinishReason::kError);
  EXPECT_EQ(progress[0].sequence, bad);
  server.run();
  EXPECT_EQ(bad->generated(), 0);
  EXPECT_EQ(good->tokens, alone(prompt_of(6, 2), 5));
  // No sequence reuses its blocks.
  const auto again = server.add(prompt_of(6, 1), 5);
  server.run();
  EXPECT_EQ(again->cached_prompt, 0);
  EXPECT_EQ(again->tokens, alone(prompt_of(6, 1), 5));
}

TEST(Scheduler, ReportsTheTokensOfThePromptOnceThroughChunksAndPreemption) {
  Server server(config_of(2, 5, 40), 10);
  server.sampling_params->prompt_logprobs = 0;
  const auto a = server.add(prompt_of(17, 1), 20), b = server.add(prompt_of(17, 2), 20);
  server.run();
  for (const auto& s : {a, b}) {
    const std::vector<int32_t> prompt(s->tokens.begin() + 1, s->tokens.begin() + 17);
    EXPECT_EQ(server.reported[s.get()], prompt);
  }
  EXPECT_EQ(a->tokens, alone(prompt_of(17, 1), 20));
  EXPECT_EQ(b->tokens, alone(prompt_of(17, 2), 20));
}

TEST(Scheduler, EmbedsPromptsInChunksBesideTexts) {
  Server server(config_of(3, 4, 40), 30);
  const auto text = server.add(prompt_of(9, 1), 12);
  std::vector<std::shared_ptr<Sequence>> embedded;
  for (const int64_t length : {1, 4, 11, 40}) {
    embedded.push_back(
        std::make_shared<Sequence>(SequenceRequest{.prompt = prompt_of(length, 5),
                                                   .sampling_params = server.sampling_params,
                                                   .embeds = true}));
    server.scheduler.add(embedded.back());
  }
  std::map<const Sequence*, std::vector<float>> reported;
  while (!server.scheduler.idle()) {
    const SchedulerOutput plan = server.scheduler.next();
    for (Progress& p : server.scheduler.done(plan, server.executor.execute(plan)))
      if (!p.embedding.empty()) {
        EXPECT_EQ(p.finish, FinishReason::kStop);
        EXPECT_TRUE(p.tokens.empty());
        EXPECT_TRUE(reported.emplace(p.sequence.get(), p.embedding).second);
      }
  }
  for (const auto& s : embedded) {
    EXPECT_EQ(s->generated(), 0);
    EXPECT_EQ(
        reported[s.get()],
        (std::vector<float>{static_cast<float>(test::next_of(s->tokens, kVocabulary)), 3, 4}));
  }
  EXPECT_EQ(text->tokens, alone(prompt_of(9, 1), 12));
  EXPECT_EQ(server.pool.used(), 0);
  EXPECT_THROW(
      server.scheduler.add(std::make_shared<Sequence>(SequenceRequest{
          .prompt = prompt_of(41, 1), .sampling_params = server.sampling_params, .embeds = true})),
      Error);
}

TEST(Scheduler, RunsAheadOfResults) {
  Server server(config_of(4, 4, 64), 64);
  const auto a = server.add(prompt_of(10, 1), 3), b = server.add(prompt_of(3, 2), 3);
  std::deque<SchedulerOutput> plans;
  while (!server.scheduler.idle()) {
    SchedulerOutput plan = server.scheduler.next();
    const bool none = plan.empty();
    if (!none) plans.push_back(std::move(plan));
    if (!none && plans.size() < 3) continue;
    server.scheduler.done(plans.front(), server.executor.execute(plans.front()));
    plans.pop_front();
  }
  EXPECT_EQ(a->tokens, alone(prompt_of(10, 1), 3));
  EXPECT_EQ(b->tokens, alone(prompt_of(3, 2), 3));
}

// A sequence that is preempted between a step and its result starts again after the result.
TEST(Scheduler, PreemptsAheadOfResults) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
    };
    BatchingConfig config = config_of(2 + draw(7), 0, 40);
    config.max_step_tokens = config.max_sequences + draw(40);
    Server server(config, 10 + draw(10));
    const size_t ahead = seed % 4;
    std::vector<std::shared_ptr<Sequence>> all;
    std::deque<std::pair<SchedulerOutput, StepOutput>> steps;
    for (int rounds = 0; all.size() < 40 || !server.scheduler.idle(); ++rounds) {
      ASSERT_LT(rounds, 100000);
      if (all.size() < 40 && draw(2) == 0)
        all.push_back(server.add(prompt_of(1 + draw(25), static_cast<int32_t>(draw(3))),
                                 1 + draw(15), static_cast<int>(draw(3))));
      SchedulerOutput plan = server.scheduler.next();
      const bool none = plan.empty();
      if (!none) {
        StepOutput result = server.executor.execute(plan);
        steps.emplace_back(std::move(plan), std::move(result));
      }
      if (steps.empty() || (!none && steps.size() <= ahead)) continue;
      server.scheduler.done(steps.front().first, std::move(steps.front().second));
      steps.pop_front();
    }
    for (const auto& s : all) {
      const std::vector<int32_t> prompt(s->tokens.begin(), s->tokens.begin() + s->prompt_tokens);
      EXPECT_EQ(s->tokens, alone(prompt, s->generated())) << "seed " << seed;
    }
  }
}

// Hundreds of sequences with shared prefixes, submitted and cancelled at random, in pools too small
// for all of them.
TEST(Scheduler, ATextIsThatOfTheSequenceAloneUnderAnyStorm) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
    };
    BatchingConfig config = config_of(1 + draw(8), 0, 40);
    config.max_step_tokens = config.max_sequences + draw(20);
    config.prefix_caching = draw(4) > 0;
    Server server(config, 10 + draw(30));
    server.max_step_tokens = config.max_step_tokens;
    std::vector<std::shared_ptr<Sequence>> all, cancelled;
    for (int n = 0; n < 60; ++n) {
      all.push_back(server.add(prompt_of(1 + draw(25), static_cast<int32_t>(draw(3))), 1 + draw(20),
                               static_cast<int>(draw(3)), draw(2) == 0 ? "" : "salt"));
      for (int64_t steps = draw(4); steps > 0; --steps) server.step();
      if (draw(6) > 0) continue;
      cancelled.push_back(all[static_cast<size_t>(draw(std::ssize(all)))]);
      server.scheduler.cancel(*cancelled.back());
    }
    server.run();
    for (const auto& s : all) {
      const std::vector<int32_t> prompt(s->tokens.begin(), s->tokens.begin() + s->prompt_tokens);
      EXPECT_EQ(s->tokens, alone(prompt, s->generated()));
      const bool ended = server.reasons.contains(s.get());
      EXPECT_TRUE(ended || std::ranges::find(cancelled, s) != cancelled.end()) << "seed " << seed;
      if (!ended) continue;
      EXPECT_EQ(s->length(), std::min(s->prompt_tokens + s->max_tokens, config.max_model_len));
    }
  }
}

// It keeps its slot, others continue, and its last token is reported with the result of its mask.
TEST(Scheduler, WhoWaitsForAMaskHoldsNobodyUp) {
  const auto rule = std::make_shared<SlowRule>();
  Server server(config_of(2, 8, 40), 40);
  const auto other = server.add(prompt_of(3, 1), 30);
  SequenceRequest request{
      .prompt = prompt_of(3, 2), .sampling_params = server.sampling_params, .max_tokens = 30};
  request.rule = rule;
  const auto waits = std::make_shared<Sequence>(std::move(request));
  server.scheduler.add(waits);
  const auto step = [&] { ASSERT_TRUE(server.step()); };
  step();
  EXPECT_EQ(waits->state, Sequence::State::kWaiting);  // its first mask is not ready
  EXPECT_TRUE(server.scheduler.waits_for_masks());
  for (rule->masks = 1; rule->masks < 4; ++rule->masks) {
    const int64_t before = other->generated();
    step();
    EXPECT_EQ(waits->generated(), rule->masks);
    EXPECT_TRUE(server.scheduler.settle().empty());
    for (int n = 0; n < 3; ++n) step();
    EXPECT_TRUE(server.scheduler.waits_for_masks());
    EXPECT_EQ(waits->generated(), rule->masks);
    EXPECT_EQ(other->generated(), before + 4);
    ++rule->masks;
    const std::vector<Progress> reported = server.scheduler.settle();
    --rule->masks;
    ASSERT_EQ(reported.size(), 1u);
    EXPECT_EQ(reported[0].sequence, waits);
    EXPECT_EQ(reported[0].tokens.size(), 1u);
    EXPECT_FALSE(reported[0].finish);
  }
  step();  // the fourth token, after which the mask allows nothing
  rule->masks = 5;
  const std::vector<Progress> reported = server.scheduler.settle();
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0].finish, FinishReason::kWhole);
  EXPECT_EQ(reported[0].tokens.size(), 1u);
  server.run();
  EXPECT_EQ(other->tokens, alone(prompt_of(3, 1), 30));
}

TEST(Scheduler, EndsWhatGetsNoMask) {
  const auto rule = std::make_shared<SlowRule>();
  rule->masks = 1;
  Server server(config_of(2, 8, 40), 40);
  const auto add = [&] {
    SequenceRequest request{
        .prompt = prompt_of(3, 2), .sampling_params = server.sampling_params, .max_tokens = 9};
    request.rule = rule;
    auto sequence = std::make_shared<Sequence>(std::move(request));
    server.scheduler.add(sequence);
    return sequence;
  };
  const auto running = add(), cancelled = add();
  ASSERT_TRUE(server.step());
  EXPECT_FALSE(server.step());
  EXPECT_TRUE(server.scheduler.waits_for_masks());
  server.scheduler.cancel(*cancelled);
  rule->refuses = true;
  rule->masks = 9;
  const auto waiting = add();
  for (const auto& ended : {running, waiting}) {
    const std::vector<Progress> reported = server.scheduler.settle();
    ASSERT_EQ(reported.size(), 1u);
    EXPECT_EQ(reported[0].sequence, ended);
    EXPECT_EQ(reported[0].finish, FinishReason::kError);
    EXPECT_TRUE(reported[0].lacks_memory);
    EXPECT_FALSE(server.step());  // finds the waiting one
  }
  EXPECT_TRUE(server.scheduler.idle());
  EXPECT_EQ(server.pool.used(), 0);
}

TEST(Scheduler, AnEndBeforeMinTokensIsAnError) {
  const auto rule = std::make_shared<SlowRule>();
  rule->masks = 100;
  for (const int64_t min_tokens : {4, 5}) {
    Server server(config_of(2, 8, 40), 40);
    server.sampling_params->min_tokens = min_tokens;
    SequenceRequest request{
        .prompt = prompt_of(3, 2), .sampling_params = server.sampling_params, .max_tokens = 9};
    request.rule = rule;
    const auto sequence = std::make_shared<Sequence>(std::move(request));
    server.scheduler.add(sequence);
    server.run();
    EXPECT_EQ(sequence->generated(), 4);
    EXPECT_EQ(server.reasons[sequence.get()],
              min_tokens == 4 ? FinishReason::kWhole : FinishReason::kError);
  }
}

// Regression: the tokens of the last step were kept forever, or reported after those of the next
// step.
TEST(Scheduler, AMaskThatComesBetweenTwoQuestionsLosesNothing) {
  const auto rule = std::make_shared<SlowRule>();
  rule->masks = 100;
  rule->late = true;
  for (const int64_t length : {4, 9}) {
    rule->length = length;
    Server server(config_of(2, 8, 40), 40);
    SequenceRequest request{
        .prompt = prompt_of(3, 2), .sampling_params = server.sampling_params, .max_tokens = 6};
    request.rule = rule;
    const auto sequence = std::make_shared<Sequence>(std::move(request));
    server.scheduler.add(sequence);
    std::vector<int32_t> written;
    std::optional<FinishReason> reason;
    const auto hear = [&](std::vector<Progress> all) {
      for (Progress& p : all) {
        for (const OutputToken& token : p.tokens) written.push_back(token.id);
        if (p.finish) reason = p.finish;
      }
    };
    for (int step = 0; step < 100 && !server.scheduler.idle(); ++step) {
      hear(server.scheduler.settle());
      if (const SchedulerOutput plan = server.scheduler.next(); !plan.empty())
        hear(server.scheduler.done(plan, server.executor.execute(plan)));
    }
    EXPECT_EQ(reason, length == 4 ? FinishReason::kWhole : FinishReason::kLength);
    EXPECT_EQ(std::vector<int32_t>(sequence->tokens.begin() + 3, sequence->tokens.end()), written);
  }
}

TEST(Scheduler, RefusesWhatItCannotRun) {
  KvBlockPool pool(4, 4, 1);
  EXPECT_THROW(Scheduler(config_of(1, 8, 17), pool), Error);
  EXPECT_THROW(Scheduler(config_of(9, 8, 16), pool), Error);
  Server server(config_of(1, 8, 16), 4);
  EXPECT_THROW(server.add(prompt_of(16, 1), 2), Error);
  EXPECT_NO_THROW(server.add(prompt_of(16, 1), 1));  // scores it
  EXPECT_THROW(server.add(prompt_of(17, 1), 1), Error);
  EXPECT_THROW(server.add({}, 1), Error);
  EXPECT_THROW(server.add({1}, 0), Error);
}

}  // namespace
}  // namespace trireme::test_scheduler
