// Draft tokens from prompt lookup, their number per sequence, and that they do not change the
// output.
#include <gtest/gtest.h>

#include <random>

#include "serving/scheduler/scheduler.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test_speculation {
namespace {

using Ids = std::vector<int32_t>;

TEST(Speculation, DraftsWhatFollowedTheLongestEnd) {
  const SpeculationConfig how{.tokens = 4, .prompt_lookup_max = 3, .prompt_lookup_min = 2};
  //                   the last tokens 1 2 3 match, before a later match of the last two
  EXPECT_EQ(draft_from_text(Ids{1, 2, 3, 7, 8, 9, 2, 3, 5, 1, 2, 3}, how, 4), (Ids{7, 8, 9, 2}));
  EXPECT_EQ(draft_from_text(Ids{1, 2, 3, 7, 4, 2, 3, 5, 9, 2, 3}, how, 2), (Ids{5, 9}));
  // No longer than the tokens available, which may overlap the end.
  EXPECT_EQ(draft_from_text(Ids{4, 6, 6, 6, 6}, how, 4), (Ids{6}));
  EXPECT_EQ(draft_from_text(Ids{1, 2, 1, 2, 1, 2}, how, 4), (Ids{1, 2}));
  // One token is not enough, nor is a partial match.
  EXPECT_EQ(draft_from_text(Ids{5, 1, 7, 1}, how, 4), Ids{});
  EXPECT_EQ(draft_from_text(Ids{5, 1, 7, 1},
                            {.tokens = 4, .prompt_lookup_max = 3, .prompt_lookup_min = 1}, 1),
            Ids{7});
  EXPECT_EQ(draft_from_text(Ids{1}, how, 4), Ids{});
  EXPECT_EQ(draft_from_text(Ids{1, 2, 3, 1, 2}, how, 0), Ids{});
  // Within the look-back window only.
  Ids text(kLookBack + 9, 3);
  text[0] = text[kLookBack + 7] = 1;
  text[1] = text[kLookBack + 8] = 2;
  EXPECT_EQ(draft_from_text(text, how, 2), Ids{});
  text.erase(text.begin() + 2, text.begin() + 12);
  EXPECT_EQ(draft_from_text(text, how, 2), (Ids{3, 3}));
}

TEST(Speculation, GivesMoreWhereDraftsAreAcceptedAndNoneWhereTheyAreNot) {
  const SpeculationConfig how{.tokens = 8};
  DraftAllowance allowance;
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

constexpr int32_t kVocabulary = 3;

// The one of three letters whose number is the text's length modulo four may not come next.
class Letters final : public TextRule {
 public:
  static uint32_t allowed(int64_t length) { return 7u & ~(1u << (length % 4)); }
  class Reader final : public RuleReader {
   public:
    std::span<const uint32_t> mask() const override { return std::span(&mask_, 1); }
    State state() override { return State::kOpen; }
    State accept(std::span<const int32_t> ids) override {
      mask_ = allowed(length_ += std::ssize(ids));
      return State::kOpen;
    }
    size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) override {
      Reader ahead(*this);
      size_t count = 0;
      while (count < ids.size() && (ahead.mask_ >> ids[count] & 1) != 0) {
        ahead.accept(ids.subspan(count++, 1));
        masks.push_back(ahead.mask_);
      }
      return count;
    }
    bool is_whole() const override { return true; }

   private:
    int64_t length_ = 0;
    uint32_t mask_ = allowed(0);
  };
  std::unique_ptr<RuleReader> begin(std::vector<int32_t>, int64_t,
                                    std::shared_ptr<MaskPace>) const override {
    return std::make_unique<Reader>();
  }
};

// Sequences of three letters, whose draft tokens are accepted now and then, in a small pool; every
// second one has the grammar.
SchedulerCounts write_texts(const SpeculationConfig& how, int64_t step_tokens,
                            const std::shared_ptr<const TextRule>& rule = {}) {
  BatchingConfig config{.max_sequences = 6, .max_step_tokens = step_tokens, .max_model_len = 90};
  config.speculation = how;
  KvBlockPool pool(60, 4, 7);
  Scheduler scheduler(config, pool);
  test::RecordedTexts executor(60, 4, kVocabulary);
  std::mt19937 random(3);
  std::vector<std::shared_ptr<Sequence>> all;
  std::vector<Ids> want;
  auto params = std::make_shared<SamplingParams>();
  for (int n = 0; n < 40; ++n) {
    SequenceRequest request;
    for (auto more = 1 + random() % 30; more > 0; --more)
      request.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
    request.sampling_params = params;
    request.max_tokens = static_cast<int64_t>(1 + random() % 59);
    if (n % 2 == 0) request.rule = rule;
    Ids& text = want.emplace_back(request.prompt);
    for (int64_t i = 0; i < request.max_tokens; ++i) {
      int32_t id = test::next_of(text, kVocabulary);
      if (request.rule)
        while ((Letters::allowed(i) >> id & 1) == 0) id = (id + 1) % 32;
      text.push_back(id);
    }
    all.push_back(std::make_shared<Sequence>(std::move(request)));
    scheduler.add(all.back());
  }
  while (!scheduler.idle()) {
    const SchedulerOutput plan = scheduler.next();
    EXPECT_LE(std::ssize(plan.tokens), step_tokens);
    scheduler.done(plan, executor.execute(plan));
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->tokens, want[i]) << i;
  EXPECT_EQ(pool.used(), 0);
  return scheduler.counts();
}

TEST(Speculation, ChangesNoText) {
  const SpeculationConfig how{.tokens = 5, .prompt_lookup_max = 3, .prompt_lookup_min = 1};
  for (const int64_t tokens : {12, 64}) {
    const SchedulerCounts counts = write_texts(how, tokens);
    EXPECT_GT(counts.drafts, 20);
    EXPECT_GT(counts.accepted_tokens, counts.draft_tokens / 10);
    EXPECT_LT(counts.accepted_tokens, counts.draft_tokens);
    EXPECT_GT(counts.preemptions, 0);
  }
  EXPECT_EQ(write_texts({}, 64).drafts, 0);
}

TEST(Speculation, ChangesNoTextThatARuleHolds) {
  const SpeculationConfig how{.tokens = 5, .prompt_lookup_max = 3, .prompt_lookup_min = 1};
  const auto rule = std::make_shared<const Letters>();
  for (const int64_t tokens : {12, 64}) {
    const SchedulerCounts counts = write_texts(how, tokens, rule);
    EXPECT_GT(counts.accepted_tokens, counts.draft_tokens / 10);
    EXPECT_LT(counts.accepted_tokens, counts.draft_tokens);
  }
}

TEST(Speculation, IsOffWhereManyRun) {
  EXPECT_EQ(
      write_texts({.tokens = 5, .prompt_lookup_min = 1, .max_running_sequences = 0}, 64).drafts, 0);
}

}  // namespace
}  // namespace trireme::test_speculation
