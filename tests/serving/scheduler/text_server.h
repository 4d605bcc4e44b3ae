// Scheduler over RecordedTexts that records finished sequences, and their expected texts.
#pragma once

#include "serving/scheduler/scheduler.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test {

inline constexpr int32_t kVocabulary = 50;

struct TextServer {
  TextServer(const BatchingConfig& config, int64_t blocks, int64_t block_tokens = 4)
      : pool(blocks, block_tokens, 7),
        scheduler(config, pool),
        executor(blocks, block_tokens, kVocabulary, config.windows) {}

  std::shared_ptr<Sequence> add(std::vector<int32_t> prompt, int64_t max_tokens, int priority = 0,
                                std::string salt = "",
                                std::shared_ptr<const TextRule> rule = nullptr) {
    SequenceRequest request;
    request.prompt = std::move(prompt);
    request.sampling_params = sampling_params;
    request.max_tokens = max_tokens;
    request.priority = priority;
    request.salt = std::move(salt);
    request.rule = std::move(rule);
    auto sequence = std::make_shared<Sequence>(std::move(request));
    scheduler.add(sequence);
    return sequence;
  }
  // Returns false if no sequence can run.
  bool step() {
    const SchedulerOutput plan = scheduler.next();
    if (plan.empty()) return false;
    ++steps;
    EXPECT_LE(std::ssize(plan.tokens), max_step_tokens);
    for (Progress& p : scheduler.done(plan, executor.execute(plan))) {
      if (p.finish) ended.push_back(p.sequence.get());
      if (p.finish) reasons[p.sequence.get()] = *p.finish;
      for (const OutputToken& t : p.prompt) reported[p.sequence.get()].push_back(t.id);
    }
    max_used = std::max(max_used, pool.used());
    return true;
  }
  void run() {
    while (step()) EXPECT_LT(steps, 100000);
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(pool.used(), 0);
  }

  std::shared_ptr<SamplingParams> sampling_params = std::make_shared<SamplingParams>();
  KvBlockPool pool;
  Scheduler scheduler;
  RecordedTexts executor;
  int64_t max_step_tokens = INT64_MAX;
  int64_t max_used = 0;  // blocks of the pool, after any step
  int steps = 0;
  std::vector<Sequence*> ended;
  std::map<Sequence*, FinishReason> reasons;
  std::map<Sequence*, std::vector<int32_t>> reported;
};

// Expected text: the prompt and `count` generated tokens.
inline std::vector<int32_t> alone(std::vector<int32_t> text, int64_t count,
                                  const std::vector<int64_t>& windows = {0}) {
  for (int64_t n = 0; n < count; ++n)
    text.push_back(next_of(seen_by_last(text, windows), kVocabulary));
  return text;
}

// Prompt that does not repeat itself; prompts with the same `first` share a prefix.
inline std::vector<int32_t> prompt_of(int64_t length, int32_t first) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<int32_t>((first + 7 * i + i / 13) % kVocabulary));
  return prompt;
}

}  // namespace trireme::test
