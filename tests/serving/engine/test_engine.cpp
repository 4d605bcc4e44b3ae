// Threads that submit and cancel sequences, without a model: each receives its own sequence's
// output.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <new>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/out_of_memory.h"
#include "serving/engine/engine.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test_engine {
namespace {

constexpr int32_t kVocabulary = 50;
constexpr int64_t kBlocks = 40, kBlockTokens = 4;
const BatchingConfig kConfig{.max_sequences = 8, .max_step_tokens = 16, .max_model_len = 100};

// Events of one sequence until it ends.
class Recorder {
 public:
  SequenceListener listener() {
    return [this](SequenceEvent&& event) {
      const std::lock_guard lock(mutex_);
      for (const OutputToken& token : event.tokens) tokens_.push_back(token.id);
      cached = event.cached_prompt;
      error = event.error.why;
      may_ask_again = event.may_retry;
      begun = event.begun != std::chrono::steady_clock::time_point{};
      first_.notify_all();
      if (event.finish) ended_.set_value(*event.finish);
    };
  }
  // Returns after the engine has left the listener: the caller may then destroy it.
  FinishReason wait() {
    const FinishReason reason = ended_.get_future().get();
    const std::lock_guard lock(mutex_);
    return reason;
  }
  void wait_for_a_token() {
    std::unique_lock lock(mutex_);
    first_.wait(lock, [&] { return !tokens_.empty(); });
  }
  std::vector<int32_t> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  int64_t cached = 0;
  std::string error;
  bool may_ask_again = false;
  bool begun = false;  // the sequence had started

 private:
  std::mutex mutex_;
  std::condition_variable first_;
  std::vector<int32_t> tokens_;
  std::promise<FinishReason> ended_;
};

std::vector<int32_t> text_of(std::vector<int32_t> prompt, int64_t count) {
  const auto length = std::ssize(prompt);
  for (int64_t n = 0; n < count; ++n) prompt.push_back(test::next_of(prompt, kVocabulary));
  return {prompt.begin() + length, prompt.end()};
}

SequenceRequest request_of(std::vector<int32_t> prompt, int64_t max_tokens) {
  return {.prompt = std::move(prompt),
          .sampling_params = std::make_shared<SamplingParams>(),
          .max_tokens = max_tokens};
}

std::unique_ptr<StepExecutor> recorded() {
  return std::make_unique<test::RecordedTexts>(kBlocks, kBlockTokens, kVocabulary);
}

TEST(Engine, ReportsToEveryThreadItsOwnTexts) {
  std::atomic<int64_t> steps = 0;
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens, [&](const StepReport& r) {
    EXPECT_GT(r.tokens, 0);
    ++steps;
  });
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int32_t n = 0; n < 25; ++n) {
        Recorder recorder;
        const std::vector<int32_t> prompt{t, n, 1, 2, 3, 4};
        engine.add(request_of(prompt, 1 + n), recorder.listener());
        EXPECT_EQ(recorder.wait(), FinishReason::kLength);
        EXPECT_EQ(recorder.tokens(), text_of(prompt, 1 + n));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const EngineCounts counts = engine.counts();
  EXPECT_EQ(counts.used_blocks, 0);
  EXPECT_EQ(counts.scheduler.running + counts.scheduler.waiting, 0);
  EXPECT_GE(steps.load(), 25);
}

TEST(Engine, ACancelledSequenceLeavesNothing) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  Recorder recorder;
  const SequenceId id = engine.add(request_of({1, 2, 3}, 90), recorder.listener());
  recorder.wait_for_a_token();
  engine.cancel(id);
  engine.cancel(id);
  engine.cancel(999);
  engine.between_steps([] {});
  EXPECT_EQ(engine.counts().used_blocks, 0);
  const size_t reported = recorder.tokens().size();
  Recorder other;
  engine.add(request_of({1}, 30), other.listener());
  other.wait();
  EXPECT_EQ(recorder.tokens().size(), reported);
}

TEST(Engine, SiblingsFindThePromptOfTheFirst) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  std::vector<int32_t> prompt(30);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  std::vector<Recorder> recorders(3);
  engine.add_siblings(request_of(prompt, 4), recorders.size(),
                      [&](size_t i) { return recorders[i].listener(); });
  for (Recorder& one : recorders) {
    one.wait();
    EXPECT_EQ(one.tokens(), text_of(prompt, 4));
  }
  EXPECT_EQ(recorders[0].cached, 0);
  EXPECT_EQ(recorders[1].cached, 28);
  EXPECT_EQ(recorders[2].cached, 28);
  engine.forget_prefixes();
  Recorder again;
  engine.add(request_of(prompt, 1), again.listener());
  again.wait();
  EXPECT_EQ(again.cached, 0);
}

// Log-probabilities of a prompt are not cached: its tokens are computed for them, but only once.
TEST(Engine, SiblingsShareWhatIsReportedOfAPrompt) {
  for (const bool caches : {true, false}) {
    std::atomic<int64_t> computed = 0;
    BatchingConfig config = kConfig;
    config.prefix_caching = caches;
    Engine engine(recorded(), config, kBlocks, kBlockTokens,
                  [&](const StepReport& r) { computed += r.tokens; });
    SequenceRequest request = request_of(std::vector<int32_t>(30, 7), 4);
    auto params = std::make_shared<SamplingParams>();
    params->prompt_logprobs = 0;
    request.sampling_params = params;
    std::vector<Recorder> recorders(3);
    std::vector<int64_t> reported(3);
    engine.add_siblings(request, recorders.size(), [&](size_t i) {
      return [&, i, report = recorders[i].listener()](SequenceEvent&& event) {
        reported[i] += std::ssize(event.prompt);
        EXPECT_TRUE(event.tokens.empty() || reported[0] == 29);
        report(std::move(event));
      };
    });
    for (Recorder& one : recorders) {
      EXPECT_EQ(one.wait(), FinishReason::kLength);
      EXPECT_EQ(one.tokens(), text_of(std::vector<int32_t>(30, 7), 4));
    }
    EXPECT_EQ(reported, (std::vector<int64_t>{29, 0, 0}));
    engine.between_steps([] {});
    // 28 tokens of the prompt are in whole blocks; of each sequence all but the last token are
    // computed.
    EXPECT_EQ(computed, 3 * 3 + (caches ? 30 + 2 * 2 : 3 * 30));
  }
}

TEST(Engine, RefusesOneRequestWithoutHarmToOthers) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  Recorder bad, good;
  engine.add(request_of(std::vector<int32_t>(100, 1), 5), bad.listener());
  engine.add(request_of({1, 2}, 5), good.listener());
  EXPECT_EQ(bad.wait(), FinishReason::kError);
  EXPECT_NE(bad.error, "");
  EXPECT_EQ(good.wait(), FinishReason::kLength);
}

// Listener whose copy, made when a sequence starts, lacks memory.
struct CopyLacksMemory {
  explicit CopyLacksMemory(Recorder& to) : listener(to.listener()) {}
  CopyLacksMemory(CopyLacksMemory&&) = default;
  [[noreturn]] CopyLacksMemory(const CopyLacksMemory&) { throw std::bad_alloc(); }
  CopyLacksMemory& operator=(const CopyLacksMemory&) = delete;
  ~CopyLacksMemory() = default;
  void operator()(SequenceEvent&& event) const { listener(std::move(event)); }
  SequenceListener listener;
};

TEST(Engine, WantOfMemoryAtTheStartMayBeRetried) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  Recorder unlucky, other;
  engine.add(request_of({1, 2}, 5), CopyLacksMemory(unlucky));
  engine.add(request_of({1, 2}, 5), other.listener());
  EXPECT_EQ(unlucky.wait(), FinishReason::kError);
  EXPECT_EQ(unlucky.error, kNoMemory);
  EXPECT_TRUE(unlucky.may_ask_again);
  EXPECT_EQ(other.wait(), FinishReason::kLength);
}

class Failing final : public StepExecutor {
 public:
  StepOutput execute(const SchedulerOutput& plan) override {
    if (plan.number == 3) throw Error("a rank is lost");
    return texts_.execute(plan);
  }

 private:
  test::RecordedTexts texts_{kBlocks, kBlockTokens, kVocabulary};
};

// Pretends that sending plans to the other ranks took an hour: the test checks which part of a step
// this counts for.
class SlowReport final : public StepExecutor {
 public:
  static constexpr double kReportSeconds = 3600;
  StepOutput execute(const SchedulerOutput& plan) override { return texts_.execute(plan); }
  double plan_send_seconds() const override { return kReportSeconds; }

 private:
  test::RecordedTexts texts_{kBlocks, kBlockTokens, kVocabulary};
};

// It counts as time of the host, not of the model.
TEST(Engine, CountsTellingRanksAsTelling) {
  std::vector<StepReport> steps;
  Engine engine(std::make_unique<SlowReport>(), kConfig, kBlocks, kBlockTokens,
                [&](const StepReport& report) { steps.push_back(report); });
  Recorder recorder;
  engine.add(request_of({1, 2}, 3), recorder.listener());
  EXPECT_EQ(recorder.wait(), FinishReason::kLength);
  engine.stop();
  ASSERT_EQ(steps.size(), 3u);
  for (const StepReport& step : steps) {
    EXPECT_LT(step.execute_seconds, 0);
    EXPECT_GE(step.report_seconds, SlowReport::kReportSeconds);
  }
}

TEST(Engine, EndsEverySequenceWhenAStepFails) {
  Engine engine(std::make_unique<Failing>(), kConfig, kBlocks, kBlockTokens);
  std::vector<Recorder> recorders(3);
  for (size_t i = 0; i < recorders.size(); ++i)
    engine.add(request_of({static_cast<int32_t>(i), 2}, 50), recorders[i].listener());
  for (Recorder& one : recorders) {
    EXPECT_EQ(one.wait(), FinishReason::kError);
    EXPECT_EQ(one.error, "a rank is lost");
  }
  EXPECT_EQ(engine.failure().why, "a rank is lost");
  EXPECT_EQ(engine.counts().used_blocks, 0);
  Recorder late;
  engine.add(request_of({1}, 1), late.listener());
  EXPECT_EQ(late.wait(), FinishReason::kError);
}

// Fails in steps with a certain token, after it has written to their blocks.
class Refusing final : public StepExecutor {
 public:
  static constexpr int32_t kRefused = 13;
  StepOutput execute(const SchedulerOutput& plan) override {
    StepOutput out = texts_.execute(plan);
    if (std::ranges::find(plan.tokens, kRefused) != plan.tokens.end()) throw Error("no thirteen");
    return out;
  }
  bool survives_failures() const override { return true; }

 private:
  test::RecordedTexts texts_{kBlocks, kBlockTokens, kVocabulary};
};

// A prompt whose sequence never contains that token.
std::vector<int32_t> harmless(int64_t count) {
  for (int32_t first = 0;; ++first) {
    const std::vector<int32_t> prompt{first, 7};
    if (std::ranges::count(text_of(prompt, count), Refusing::kRefused) == 0 &&
        first != Refusing::kRefused)
      return prompt;
  }
}

TEST(Engine, LosesOnlyTheSequencesOfAStepThatFails) {
  const BatchingConfig one{.max_sequences = 1, .max_step_tokens = 4, .max_model_len = 100};
  Engine engine(std::make_unique<Refusing>(), one, kBlocks, kBlockTokens);
  std::vector<Recorder> recorders(8);
  // One at a time: every second one fails, in its first or in its second step.
  for (size_t i = 0; i < recorders.size(); ++i)
    engine.add(request_of(i % 2 == 0   ? harmless(20)
                          : i % 4 == 1 ? std::vector<int32_t>{1, 13, 2}
                                       : std::vector<int32_t>{1, 2, 3, 4, 13},
                          20),
               recorders[i].listener());
  for (size_t i = 0; i < recorders.size(); ++i) {
    EXPECT_EQ(recorders[i].wait(), i % 2 == 0 ? FinishReason::kLength : FinishReason::kError) << i;
    EXPECT_EQ(recorders[i].error, i % 2 == 0 ? "" : "no thirteen");
    EXPECT_TRUE(recorders[i].begun);
    if (i % 2 == 0) {
      EXPECT_EQ(recorders[i].tokens(), text_of(harmless(20), 20));
    }
  }
  engine.between_steps([] {});
  EXPECT_EQ(engine.failure().why, "");
  EXPECT_EQ(engine.counts().scheduler.failed_steps, 4);
  EXPECT_EQ(engine.counts().used_blocks, 0);
}

TEST(Engine, GivesUpWhenStepAfterStepFails) {
  const BatchingConfig one{.max_sequences = 1, .max_step_tokens = 4, .max_model_len = 100};
  Engine engine(std::make_unique<Refusing>(), one, kBlocks, kBlockTokens);
  std::vector<Recorder> recorders(4);
  for (Recorder& h : recorders) engine.add(request_of({13}, 20), h.listener());
  for (Recorder& h : recorders) EXPECT_EQ(h.wait(), FinishReason::kError);
  EXPECT_EQ(engine.failure().why, "no thirteen");
  EXPECT_EQ(engine.counts().scheduler.failed_steps, Engine::kMaxFailures - 1);
}

// Has memory only for steps whose prompts contain no 13.
class Cramped final : public StepExecutor {
 public:
  explicit Cramped(bool survives) : survives_(survives) {}
  StepOutput execute(const SchedulerOutput& plan) override {
    if (std::ranges::find(plan.tokens, 13) == plan.tokens.end()) return texts_.execute(plan);
    if (++failures_ % 2 == 0) throw std::bad_alloc();
    throw OutOfMemory("no memory for thirteen");
  }
  bool survives_failures() const override { return survives_; }

 private:
  const bool survives_;
  int failures_ = 0;
  test::RecordedTexts texts_{kBlocks, kBlockTokens, kVocabulary};
};

TEST(Engine, LivesThroughWantOfMemory) {
  const BatchingConfig one{.max_sequences = 1, .max_step_tokens = 4, .max_model_len = 100};
  Engine engine(std::make_unique<Cramped>(true), one, kBlocks, kBlockTokens);
  std::vector<Recorder> recorders(3 * Engine::kMaxFailures);
  for (Recorder& h : recorders) engine.add(request_of({13}, 20), h.listener());
  for (Recorder& h : recorders) {
    EXPECT_EQ(h.wait(), FinishReason::kError);
    EXPECT_TRUE(h.error.starts_with(kNoMemory)) << h.error;
    EXPECT_TRUE(h.may_ask_again);
  }
  Recorder last;
  engine.add(request_of(harmless(20), 20), last.listener());
  EXPECT_EQ(last.wait(), FinishReason::kLength);
  EXPECT_EQ(last.tokens(), text_of(harmless(20), 20));
  EXPECT_EQ(engine.failure().why, "");
}

// Multi-rank executors cannot retry: the other ranks have already run the step.
TEST(Engine, WantOfMemoryEndsWhatDoesNotSurviveIt) {
  Engine engine(std::make_unique<Cramped>(false), kConfig, kBlocks, kBlockTokens);
  Recorder recorder;
  engine.add(request_of({13}, 20), recorder.listener());
  EXPECT_EQ(recorder.wait(), FinishReason::kError);
  engine.between_steps([] {});
  EXPECT_EQ(engine.failure().why, "no memory for thirteen");
}

// Grammar whose masks are computed by another thread.
struct ThreadRule final : TextRule {
  struct Reader final : RuleReader {
    explicit Reader(std::shared_ptr<MaskPace> its_pace) : pace(std::move(its_pace)) {}
    ~Reader() override {
      if (thread.joinable()) thread.join();
    }
    State state() override {
      if (!thread.joinable() && !there) make();
      return there ? State::kOpen : State::kPending;
    }
    std::span<const uint32_t> mask() const override { return all; }
    State accept(std::span<const int32_t>) override {
      thread.join();
      there = false;
      make();
      return State::kPending;
    }
    size_t look_ahead(std::span<const int32_t>, std::vector<uint32_t>&) override { return 0; }
    bool is_whole() const override { return true; }
    void make() {
      thread = std::thread([this] {
        there = true;
        pace->notify();
      });
    }
    std::shared_ptr<MaskPace> pace;
    std::atomic<bool> there{false};
    std::thread thread;
    std::vector<uint32_t> all = {~0u, ~0u};
  };
  std::unique_ptr<RuleReader> begin(std::vector<int32_t>, int64_t,
                                    std::shared_ptr<MaskPace> pace) const override {
    return std::make_unique<Reader>(std::move(pace));
  }
};

// The engine sleeps while all sequences wait for masks, and each mask wakes it.
TEST(Engine, WaitsForMasks) {
  int64_t first_tokens = 0;
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens,
                [&](const StepReport& report) { first_tokens += report.first_tokens; });
  std::vector<Recorder> recorders(6);
  for (size_t i = 0; i < recorders.size(); ++i) {
    SequenceRequest request = request_of({static_cast<int32_t>(i), 1, 2}, 30);
    if (i % 3 != 2) request.rule = std::make_shared<ThreadRule>();
    engine.add(std::move(request), recorders[i].listener());
  }
  for (size_t i = 0; i < recorders.size(); ++i) {
    EXPECT_EQ(recorders[i].wait(), FinishReason::kLength);
    EXPECT_EQ(recorders[i].tokens(), text_of({static_cast<int32_t>(i), 1, 2}, 30));
  }
  engine.between_steps([] {});
  EXPECT_EQ(engine.counts().used_blocks, 0);
  EXPECT_EQ(first_tokens, 6);
}

// Grammar whose second mask never becomes ready.
struct StuckRule final : TextRule {
  struct Reader final : RuleReader {
    explicit Reader(std::promise<void>& its_promise) : promise(its_promise) {}
    State state() override { return accepted ? State::kPending : State::kOpen; }
    std::span<const uint32_t> mask() const override { return all; }
    State accept(std::span<const int32_t>) override {
      accepted = true;
      promise.set_value();
      return State::kPending;
    }
    size_t look_ahead(std::span<const int32_t>, std::vector<uint32_t>&) override { return 0; }
    bool is_whole() const override { return true; }
    std::promise<void>& promise;
    bool accepted = false;
    std::vector<uint32_t> all = {~0u, ~0u};
  };
  explicit StuckRule(std::promise<void>& its_promise) : promise(its_promise) {}
  std::unique_ptr<RuleReader> begin(std::vector<int32_t>, int64_t,
                                    std::shared_ptr<MaskPace>) const override {
    return std::make_unique<Reader>(promise);
  }
  std::promise<void>& promise;
};

// A pending progress report would hold the sequence's grammar until the engine's next step.
TEST(Engine, ACancelledSequenceGivesBackItsRule) {
  std::promise<void> accepted;
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  Recorder recorder;
  SequenceRequest request = request_of({1, 2, 3}, 30);
  request.rule = std::make_shared<StuckRule>(accepted);
  const std::weak_ptr<const TextRule> rule = request.rule;
  const SequenceId id = engine.add(std::move(request), recorder.listener());
  accepted.get_future().wait();
  engine.cancel(id);
  engine.between_steps([] {});
  EXPECT_TRUE(rule.expired());
}

// Fails in its third step, and then runs again with an empty cache.
class Recovering final : public StepExecutor {
 public:
  StepOutput execute(const SchedulerOutput& plan) override {
    if (++steps_ != 3) return texts_->execute(plan);
    texts_ = std::make_unique<test::RecordedTexts>(kBlocks, kBlockTokens, kVocabulary);
    throw Error("a rank is lost");
  }

 private:
  int steps_ = 0;
  std::unique_ptr<test::RecordedTexts> texts_ =
      std::make_unique<test::RecordedTexts>(kBlocks, kBlockTokens, kVocabulary);
};

TEST(Engine, GoesOnWhenItsExecutorCanComputeAgain) {
  Engine engine(std::make_unique<Recovering>(), kConfig, kBlocks, kBlockTokens);
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  Recorder lost, early, late, after;
  engine.add(request_of(prompt, 50), lost.listener());
  EXPECT_EQ(lost.wait(), FinishReason::kError);
  engine.interrupt("a rank is lost");
  engine.add(request_of({1}, 1), early.listener());
  EXPECT_EQ(early.wait(), FinishReason::kError);
  EXPECT_EQ(early.error, "a rank is lost");
  engine.resume();
  engine.between_steps([] {});
  EXPECT_EQ(engine.failure().why, "");
  engine.add(request_of(prompt, 50), late.listener());
  EXPECT_EQ(late.wait(), FinishReason::kLength);
  EXPECT_EQ(late.tokens(), text_of(prompt, 50));
  EXPECT_EQ(late.cached, 0);  // the cached blocks are lost
  // Interrupted between steps, with nothing running.
  engine.interrupt("again");
  EXPECT_EQ(engine.failure().why, "again");
  engine.resume();
  engine.add(request_of(prompt, 5), after.listener());
  EXPECT_EQ(after.wait(), FinishReason::kLength);
  EXPECT_EQ(after.cached, 0);
  EXPECT_EQ(engine.counts().used_blocks, 0);
}

// Resumes on the engine's thread while it ends the running sequences: as early as another thread
// could.
TEST(Engine, TakesWhatComesAfterItResumes) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  std::promise<void> over;
  Recorder after;
  engine.add(request_of({1, 2, 3}, 90), [&, first = true](SequenceEvent&& event) mutable {
    if (std::exchange(first, false)) engine.interrupt("a rank is lost");
    if (!event.finish) return;
    EXPECT_EQ(event.finish, FinishReason::kError);
    engine.resume();
    engine.add(request_of({5}, 4), after.listener());
    over.set_value();
  });
  over.get_future().wait();
  EXPECT_EQ(after.wait(), FinishReason::kLength);
  EXPECT_EQ(after.tokens(), text_of({5}, 4));
}

TEST(Engine, TakesNothingOnceItHasStopped) {
  Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
  engine.stop();
  engine.stop();
  Recorder recorder;
  engine.cancel(engine.add(request_of({1, 2}, 5), recorder.listener()));
  EXPECT_EQ(recorder.wait(), FinishReason::kError);
  EXPECT_EQ(recorder.error, "the server is stopping");
  bool worked = false;
  engine.between_steps([&] { worked = true; });
  EXPECT_TRUE(worked);
}

TEST(Engine, EndsWhatItStillRunsWhenItGoes) {
  Recorder recorder;
  {
    Engine engine(recorded(), kConfig, kBlocks, kBlockTokens);
    engine.add(request_of({1, 2, 3}, 97), recorder.listener());
    recorder.wait_for_a_token();
  }
  const FinishReason reason = recorder.wait();
  EXPECT_TRUE(reason == FinishReason::kError || recorder.tokens().size() == 97);
}

}  // namespace
}  // namespace trireme::test_engine
