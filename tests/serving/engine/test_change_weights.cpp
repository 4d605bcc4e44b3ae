// Weight changes during generation: each sequence uses the old or the new weights, as the kind of
// change defines.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "engine/core/error.h"
#include "serving/engine/engine.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test_change_weights {
namespace {

constexpr int32_t kVocabulary = 50;
constexpr int64_t kBlocks = 400, kBlockTokens = 4;
const BatchingConfig kConfig{.max_sequences = 4, .max_step_tokens = 16, .max_model_len = 100};

// Executor whose tokens are even with the old weights and odd with the new ones.
class TwoWeights final : public StepExecutor {
 public:
  StepOutput execute(const SchedulerOutput& plan) override {
    for (++steps_; steps_ > max_steps;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(step_time));
    StepOutput outcome = texts_.execute(plan);
    for (OutputToken& token : outcome.sampled) token.id = token.id / 2 * 2 + (is_new ? 1 : 0);
    return outcome;
  }
  bool is_new = false;
  std::atomic<int> step_time = 200;  // microseconds
  std::atomic<int64_t> max_steps = INT64_MAX;

 private:
  int64_t steps_ = 0;
  test::RecordedTexts texts_{kBlocks, kBlockTokens, kVocabulary};
};

struct Completion {
  std::vector<int32_t> tokens;
  int64_t cached = 0;
  FinishReason reason = FinishReason::kStop;
  std::string error;
  bool is_all(int32_t parity) const {
    return std::ranges::all_of(tokens, [&](int32_t id) { return id % 2 == parity; });
  }
};

class ChangeWeights : public testing::Test {
 protected:
  ChangeWeights() {
    auto executor = std::make_unique<TwoWeights>();
    executor_ = executor.get();
    engine = std::make_unique<Engine>(std::move(executor), kConfig, kBlocks, kBlockTokens);
  }

  // `began` is set with the first token.
  std::future<Completion> write(std::vector<int32_t> prompt, int64_t tokens,
                                std::promise<void>* began = nullptr,
                                const std::shared_ptr<WeightsHold>& hold = nullptr) {
    auto completion = std::make_shared<Completion>();
    auto done = std::make_shared<std::promise<Completion>>();
    std::future<Completion> result = done->get_future();
    engine->add(
        {.prompt = std::move(prompt),
         .sampling_params = std::make_shared<SamplingParams>(),
         .max_tokens = tokens},
        [=, first = true](SequenceEvent&& event) mutable {
          if (began != nullptr && std::exchange(first, false)) began->set_value();
          for (const OutputToken& token : event.tokens) completion->tokens.push_back(token.id);
          completion->cached = event.cached_prompt;
          completion->error = event.error.why;
          if (!event.finish) return;
          completion->reason = *event.finish;
          done->set_value(*completion);
        },
        hold);
    return result;
  }
  void change(Handover how) {
    engine->change_weights(how, [this] { executor_->is_new = true; }).get();
  }
  // Changes the weights while a sequence is in its second step.
  void change_under_way(Handover how) {
    std::future<void> changed = engine->change_weights(how, [this] { executor_->is_new = true; });
    executor_->max_steps = INT64_MAX;
    changed.get();
  }
  // Returns whether a sequence of one or two steps still waits after it could have finished.
  bool waits(const std::future<Completion>& text) const {
    for (int step = 0; step < 8; ++step) engine->between_steps([] {});
    return text.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  // Submits a sequence while a change waits.
  std::future<Completion> write_behind_a_change() {
    std::future<Completion> text;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      text = write({9, 9}, 1);
      if (waits(text)) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "the change waits for nothing";
    return text;
  }
  static bool comes(const auto& future) {
    return future.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  }

  std::unique_ptr<Engine> engine;
  TwoWeights* executor_ = nullptr;
};

const std::vector<int32_t> kPrompt{1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST_F(ChangeWeights, WaitsForWhatHasComeBefore) {
  (void)write(kPrompt, 5).get();
  EXPECT_EQ(write(kPrompt, 5).get().cached, 8);
  // More than run at a time: the waiting ones were also submitted before.
  std::vector<std::future<Completion>> before, beside;
  for (int32_t i = 0; i < 10; ++i) before.push_back(write({i, 1}, 40));
  std::atomic<bool> changed = false;
  std::thread asks([&] {
    for (int32_t i = 0;; ++i) {
      const bool last = changed;
      beside.push_back(write({i % 40, 2, i / 40 % 40}, 20));
      if (last) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  change(Handover::kWait);
  changed = true;
  asks.join();
  for (auto& one : before) {
    const Completion completion = one.get();
    EXPECT_EQ(completion.reason, FinishReason::kLength);
    EXPECT_TRUE(completion.is_all(0));
  }
  int64_t of_the_new = 0;
  for (auto& one : beside) {
    const Completion completion = one.get();
    EXPECT_EQ(completion.tokens.size(), 20u);
    EXPECT_TRUE(completion.is_all(0) || completion.is_all(1));
    of_the_new += completion.is_all(1) ? 1 : 0;
  }
  EXPECT_GT(of_the_new, 0);
  const Completion after = write(kPrompt, 5).get();
  EXPECT_TRUE(after.is_all(1));
  EXPECT_EQ(after.cached, 0);  // blocks computed with the old weights are not reused
  EXPECT_EQ(write(kPrompt, 5).get().cached, 8);
  engine->between_steps([] {});
  EXPECT_EQ(engine->counts().scheduler.waiting, 0);
  EXPECT_EQ(engine->counts().used_blocks, 0);
}

TEST_F(ChangeWeights, CancelsWhatWaitsForIt) {
  std::promise<void> began;
  auto before = write(kPrompt, 90, &began);
  began.get_future().wait();
  std::future<void> asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  std::vector<SequenceId> held;
  std::atomic<int64_t> events = 0;
  while (before.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready)
    held.push_back(engine->add(
        {.prompt = {3}, .sampling_params = std::make_shared<SamplingParams>(), .max_tokens = 90},
        [&](SequenceEvent&&) { ++events; }));
  for (const SequenceId id : held) engine->cancel(id);
  asked.get();
  engine->between_steps([] {});
  EXPECT_EQ(engine->counts().scheduler.running + engine->counts().scheduler.waiting, 0);
  EXPECT_EQ(engine->counts().used_blocks, 0);
}

// The others compute the prompt that they waited for.
TEST_F(ChangeWeights, SiblingsOfACancelledSequenceStartAfterIt) {
  executor_->max_steps = 1;
  std::promise<void> began;
  auto before = write(kPrompt, 5, &began);
  began.get_future().wait();
  auto changed = engine->change_weights(Handover::kWait, [this] { executor_->is_new = true; });
  std::vector<Completion> completions(3);
  std::vector<std::promise<void>> ended(completions.size());
  const std::vector<SequenceId> ids = engine->add_siblings(
      {.prompt = kPrompt, .sampling_params = std::make_shared<SamplingParams>(), .max_tokens = 5},
      completions.size(), [&](size_t i) {
        return [&, i](SequenceEvent&& event) {
          for (const OutputToken& token : event.tokens) completions[i].tokens.push_back(token.id);
          completions[i].error = event.error.why;
          if (event.finish) ended[i].set_value();
        };
      });
  engine->cancel(ids[0]);
  executor_->max_steps = INT64_MAX;
  changed.get();
  EXPECT_TRUE(before.get().is_all(0));
  for (size_t i : {1, 2}) {
    ASSERT_TRUE(comes(ended[i].get_future()));
    EXPECT_EQ(completions[i].error, "");
    EXPECT_EQ(completions[i].tokens.size(), 5u);
    EXPECT_TRUE(completions[i].is_all(1));
  }
  engine->between_steps([] {});
  EXPECT_TRUE(completions[0].tokens.empty());
  EXPECT_EQ(engine->failure().why, "");
  EXPECT_EQ(engine->counts().used_blocks, 0);
}

TEST_F(ChangeWeights, WaitsForWhatBelongsTogether) {
  auto search = std::make_shared<WeightsHold>();
  EXPECT_TRUE(write({1}, 1, nullptr, search).get().is_all(0));
  // None of its sequences is running now.
  auto asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  const auto behind = write_behind_a_change();
  auto late = std::make_shared<WeightsHold>();
  auto first_of_late = write({5}, 3, nullptr, late), second_of_late = write({6}, 3, nullptr, late);
  for (int32_t round = 0; round < 3; ++round) {
    auto one = write({1, round}, 2, nullptr, search), other = write({2}, 2, nullptr, search);
    ASSERT_TRUE(comes(one) && comes(other));
    EXPECT_TRUE(one.get().is_all(0) && other.get().is_all(0));
  }
  EXPECT_TRUE(waits(behind) && waits(first_of_late) && waits(second_of_late));
  search.reset();
  ASSERT_TRUE(comes(asked) && comes(behind) && comes(first_of_late) && comes(second_of_late));
  EXPECT_TRUE(first_of_late.get().is_all(1) && second_of_late.get().is_all(1));
  EXPECT_TRUE(write({7}, 3, nullptr, late).get().is_all(1));
}

TEST_F(ChangeWeights, RefusesWhatBelongsToTextsThatAreEnded) {
  auto search = std::make_shared<WeightsHold>();
  EXPECT_TRUE(write({1}, 1, nullptr, search).get().is_all(0));
  change(Handover::kAbort);
  const Completion completion = write({1, 2}, 1, nullptr, search).get();
  EXPECT_EQ(completion.reason, FinishReason::kError);
  EXPECT_EQ(completion.error, kWeightsChange);
  search = std::make_shared<WeightsHold>();
  EXPECT_TRUE(write({1, 2}, 1, nullptr, search).get().is_all(1));
}

// Restarted ranks may have other weights than those of a request's first sequences.
TEST_F(ChangeWeights, RefusesTheRestOfWhatALossHasDivided) {
  auto search = std::make_shared<WeightsHold>();
  EXPECT_TRUE(write({1}, 1, nullptr, search).get().is_all(0));
  engine->interrupt("a rank is lost");
  engine->resume();
  EXPECT_EQ(write({1, 2}, 1, nullptr, search).get().reason, FinishReason::kError);
  EXPECT_TRUE(write({1, 2}, 1).get().is_all(0));
  search = std::make_shared<WeightsHold>();
  EXPECT_TRUE(write({1, 2}, 1, nullptr, search).get().is_all(0));
}

TEST_F(ChangeWeights, WaitsNotForWhatEndsWhileTheEngineRests) {
  auto search = std::make_shared<WeightsHold>();
  (void)write({1}, 1, nullptr, search).get();
  engine->interrupt("a rank is lost");
  search.reset();
  engine->resume();
  auto asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  ASSERT_TRUE(comes(asked));
  // A client that disconnects while it waits does not block the change.
  auto held = std::make_shared<WeightsHold>();
  std::promise<void> began;
  auto before = write({1}, 90, &began);
  began.get_future().wait();
  asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  auto late = write({2}, 1, nullptr, held);
  held.reset();
  ASSERT_TRUE(comes(asked) && comes(late));
  asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  ASSERT_TRUE(comes(asked));
}

TEST_F(ChangeWeights, EndsWhatRunsWhereRequested) {
  executor_->max_steps = 1;
  std::promise<void> began;
  auto before = write(kPrompt, 90, &began);
  began.get_future().wait();
  change_under_way(Handover::kAbort);
  const Completion lost = before.get();
  EXPECT_EQ(lost.reason, FinishReason::kError);
  EXPECT_EQ(lost.error, kWeightsChange);
  EXPECT_EQ(engine->failure().why, "");
  EXPECT_TRUE(write(kPrompt, 5).get().is_all(1));
}

TEST_F(ChangeWeights, KeepsWhatRunsWhereRequested) {
  executor_->max_steps = 1;
  std::promise<void> began;
  auto before = write(kPrompt, 90, &began);
  began.get_future().wait();
  change_under_way(Handover::kKeep);
  const Completion completion = before.get();
  EXPECT_EQ(completion.tokens.size(), 90u);
  EXPECT_EQ(completion.tokens.front() % 2, 0);
  EXPECT_EQ(completion.tokens.back() % 2, 1);
  EXPECT_EQ(write(kPrompt, 5).get().cached, 0);
}

TEST_F(ChangeWeights, GoesOnWhereTheyAreRefused) {
  std::promise<void> began;
  auto before = write(kPrompt, 60, &began);
  began.get_future().wait();
  EXPECT_THROW(engine->change_weights(Handover::kKeep, [] { throw InputError("others"); }).get(),
               InputError);
  EXPECT_EQ(before.get().tokens.size(), 60u);
  EXPECT_TRUE(write(kPrompt, 5).get().is_all(0));
}

TEST_F(ChangeWeights, FailsWithThem) {
  EXPECT_THROW(engine->change_weights(Handover::kWait, [] { throw Error("a rank is lost"); }).get(),
               Error);
  EXPECT_EQ(engine->failure().why, "a rank is lost");
  EXPECT_EQ(write(kPrompt, 5).get().error, "a rank is lost");
  EXPECT_THROW(change(Handover::kKeep), Error);
}

TEST_F(ChangeWeights, StopsWhereItEnds) {
  executor_->step_time = 200'000;  // 90 of them: it does not finish first
  std::promise<void> began;
  auto before = write(kPrompt, 90, &began);
  began.get_future().wait();
  std::future<void> asked = std::async(std::launch::async, [&] { change(Handover::kWait); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  engine->stop();
  EXPECT_THROW(asked.get(), Error);
  EXPECT_EQ(before.get().reason, FinishReason::kError);
}

}  // namespace
}  // namespace trireme::test_change_weights
