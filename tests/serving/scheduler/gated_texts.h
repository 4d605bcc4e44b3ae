// RecordedTexts whose steps a test can block and let fail.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test {

// Gate of an executor's steps: lets them run, blocks them, or lets them fail until changed.
class Gate {
 public:
  void hold() { hold_after(0); }
  void hold_after(int64_t steps) { set(steps); }
  void release() { set(INT64_MAX); }
  // Returns whether all steps allowed so far have started.
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
  // Number of steps started so far.
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
  int64_t steps_ = INT64_MAX, passed_ = 0;  // steps still allowed, steps started
  bool fails_ = false;
};

class GatedTexts final : public StepExecutor {
 public:
  GatedTexts(Gate& gate, int64_t blocks, int64_t block_tokens, std::vector<int32_t> script = {})
      : gate_(gate), texts_(blocks, block_tokens, 256) {
    texts_.script = std::move(script);
  }
  StepOutput execute(const SchedulerOutput& plan) override {
    gate_.pass();
    return texts_.execute(plan);
  }

 private:
  Gate& gate_;
  RecordedTexts texts_;
};

}  // namespace trireme::test
