// RecordedTexts whose steps a test can hold and let fail.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test {

// Lets steps be computed, or holds them; and may fail, until it is told otherwise.
class Gate {
 public:
  void hold() { hold_after(0); }
  void hold_after(int64_t steps) { set(steps); }
  void release() { set(INT64_MAX); }
  // So many steps have been computed, or are.
  bool is_shut() {
    const std::lock_guard lock(mutex_);
    return steps_ == 0;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return steps_ > 0 || fails_; });
    if (fails_) throw std::runtime_error("rank 3 lost");
    --steps_;
    ++passed_;
  }
  // Steps so far.
  int64_t passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  void set(int64_t steps) {
    const std::lock_guard lock(mutex_);
    steps_ = steps;
    fails_ = false;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t steps_ = INT64_MAX, passed_ = 0;  // that may still be computed, that were
  bool fails_ = false;
};

class GatedTexts final : public StepExecutor {
 public:
  GatedTexts(Gate& gate, int64_t blocks, int64_t block_tokens, std::vector<int32_t> script = {})
      : gate_(gate), texts_(blocks, block_tokens, 256) {
    texts_.script = std::move(script);
  }
  StepOutcome execute(const StepPlan& plan) override {
    gate_.pass();
    return texts_.execute(plan);
  }

 private:
  Gate& gate_;
  RecordedTexts texts_;
};

}  // namespace trireme::test
