// Executor whose weights are a word, and whose output depends on it.
#pragma once

#include <mutex>
#include <string>

#include "serving/scheduler/model_weights.h"
#include "tests/serving/distributed/plans.h"

namespace trireme::test {

class WordWeights final : public ModelWeights {
 public:
  explicit WordWeights(std::string word) : used_(std::move(word)) {}

  Checkpoint served() const override { return {used(), 0}; }
  Checkpoint stage(const std::string& path) override {
    if (path == refuses) throw InputError(concat(path, " is for another model"));
    const std::lock_guard lock(mutex_);
    staged_ = path;
    return {path, 0};
  }
  void stage_adapter(int32_t slot, const std::string& path) override {
    (void)stage(concat(used(), " ", slot, path));
  }
  void use(size_t) override {
    const std::lock_guard lock(mutex_);
    used_.swap(staged_);
  }
  void drop() override {
    const std::lock_guard lock(mutex_);
    staged_.clear();
    ++dropped;
  }
  std::string used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }

  std::string refuses;
  int dropped = 0;

 private:
  mutable std::mutex mutex_;
  std::string used_, staged_;
};

// Adds the number of the word's bytes to each sampled token id.
class WordTexts final : public StepExecutor {
 public:
  explicit WordTexts(const WordWeights& weights) : weights_(weights) {}
  StepOutput execute(const SchedulerOutput& plan) override {
    with.push_back(weights_.used());
    StepOutput outcome = texts_.execute(plan);
    for (OutputToken& token : outcome.sampled)
      token.id = static_cast<int32_t>((token.id + std::ssize(with.back())) % kPlanBounds.ids);
    return outcome;
  }
  std::vector<std::string> with;  // word used for each plan

 private:
  const WordWeights& weights_;
  RecordedTexts texts_{kPlanBounds.blocks, kPlanBounds.block_tokens,
                       static_cast<int32_t>(kPlanBounds.ids)};
};

}  // namespace trireme::test
