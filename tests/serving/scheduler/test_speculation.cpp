// Guesses from texts, how many a sequence is given, and that they change no text.
#include <gtest/gtest.h>

#include <random>

#include "serving/scheduler/scheduler.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme {
namespace {

using Ids = std::vector<int32_t>;

TEST(Speculation, GuessesWhatFollowedTheLongestEnd) {
  const SpeculationConfig how{.tokens = 4, .longest = 3, .shortest = 2};
  //                    the end 1 2 3 of three, then of two, later
  EXPECT_EQ(guess_from_text(Ids{1, 2, 3, 7, 8, 9, 2, 3, 5, 1, 2, 3}, how, 4), (Ids{7, 8, 9, 2}));
  EXPECT_EQ(guess_from_text(Ids{1, 2, 3, 7, 4, 2, 3, 5, 9, 2, 3}, how, 2), (Ids{5, 9}));
  // No longer than what is there, and over the end itself.
  EXPECT_EQ(guess_from_text(Ids{4, 6, 6, 6, 6}, how, 4), (Ids{6}));
  EXPECT_EQ(guess_from_text(Ids{1, 2, 1, 2, 1, 2}, how, 4), (Ids{1, 2}));
  // One token is too little, and so is a beginning.
  EXPECT_EQ(guess_from_text(Ids{5, 1, 7, 1}, how, 4), Ids{});
  EXPECT_EQ(guess_from_text(Ids{5, 1, 7, 1}, {.tokens = 4, .longest = 3, .shortest = 1}, 1),
            Ids{7});
  EXPECT_EQ(guess_from_text(Ids{1}, how, 4), Ids{});
  EXPECT_EQ(guess_from_text(Ids{1, 2, 3, 1, 2}, how, 0), Ids{});
  // So far back and no further.
  Ids text(kLookBack + 9, 3);
  text[0] = text[kLookBack + 7] = 1;
  text[1] = text[kLookBack + 8] = 2;
  EXPECT_EQ(guess_from_text(text, how, 2), Ids{});
  text.erase(text.begin() + 2, text.begin() + 12);
  EXPECT_EQ(guess_from_text(text, how, 2), (Ids{3, 3}));
}

TEST(Speculation, GivesMoreWhereGuessesComeTrueAndNoneWhereTheyDoNot) {
  const SpeculationConfig how{.tokens = 8};
  GuessAllowance allowance;
  EXPECT_EQ(allowance.allowed(how), 8);
  for (const int64_t left : {4, 2, 1, 0}) {
    allowance.verified(allowance.allowed(how), 0, how);
    EXPECT_EQ(allowance.allowed(how), left);
  }
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(allowance.allowed(how), 0) << i;
    allowance.without();
  }
  EXPECT_EQ(allowance.allowed(how), 1);
  for (const int64_t more : {2, 4, 8, 8}) {
    allowance.verified(allowance.allowed(how), allowance.allowed(how), how);
    EXPECT_EQ(allowance.allowed(how), more);
  }
  allowance.verified(8, 3, how);
  EXPECT_EQ(allowance.allowed(how), 8);
}

// Texts of three letters, of which guesses come true now and then, through a small pool.
SchedulerCounts write_texts(const SpeculationConfig& how, int64_t step_tokens) {
  constexpr int32_t kVocabulary = 3;
  BatchingConfig config{.max_sequences = 6, .max_step_tokens = step_tokens, .max_model_len = 90};
  config.speculation = how;
  BlockPool pool(60, 4, 7);
  Scheduler scheduler(config, pool);
  test::RecordedTexts executor(60, 4, kVocabulary);
  std::mt19937 random(3);
  std::vector<std::shared_ptr<Sequence>> all;
  std::vector<Ids> want;
  auto choice = std::make_shared<TokenChoice>();
  for (int n = 0; n < 40; ++n) {
    SequenceRequest request;
    for (auto more = 1 + random() % 30; more > 0; --more)
      request.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
    request.choice = choice;
    request.max_tokens = static_cast<int64_t>(1 + random() % 59);
    Ids& text = want.emplace_back(request.prompt);
    for (int64_t i = 0; i < request.max_tokens; ++i)
      text.push_back(test::next_of(text, kVocabulary));
    all.push_back(std::make_shared<Sequence>(std::move(request)));
    scheduler.add(all.back());
  }
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.next();
    EXPECT_LE(std::ssize(plan.tokens), step_tokens);
    scheduler.done(plan, executor.execute(plan));
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->tokens, want[i]) << i;
  EXPECT_EQ(pool.used(), 0);
  return scheduler.counts();
}

TEST(Speculation, ChangesNoText) {
  const SpeculationConfig how{.tokens = 5, .longest = 3, .shortest = 1};
  for (const int64_t tokens : {12, 64}) {
    const SchedulerCounts counts = write_texts(how, tokens);
    EXPECT_GT(counts.drafts, 20);
    EXPECT_GT(counts.accepted_tokens, counts.draft_tokens / 10);
    EXPECT_LT(counts.accepted_tokens, counts.draft_tokens);
    EXPECT_GT(counts.preemptions, 0);
  }
  EXPECT_EQ(write_texts({}, 64).drafts, 0);
}

TEST(Speculation, IsOffWhereManyRun) {
  EXPECT_EQ(write_texts({.tokens = 5, .shortest = 1, .most_sequences = 0}, 64).drafts, 0);
}

}  // namespace
}  // namespace trireme
