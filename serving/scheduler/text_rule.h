// Constraint on a completion, followed token by token: which tokens may come next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace trireme {

// Shared by all readers of one thread: what that thread spends on their masks, and how it is told
// of masks that other threads have made instead.
class MaskPace {
 public:
  explicit MaskPace(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Work, in nodes of the vocabulary's trie, that the readers' thread may still do itself. That
  // thread's alone.
  int64_t left = 0;

  // A mask is there. From any thread.
  void notify() {
    const std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }
  // From here on `wake` is not called.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = {};
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
};

// Follows the completion of one sequence. One thread at a time; does not throw.
class RuleReader {
 public:
  enum class State : uint8_t {
    kOpen,     // tokens may follow: mask()
    kEnded,    // none may
    kPending,  // another thread finds out; MaskPace::notify() follows
    kRefused,  // there is no memory to find out
  };
  virtual ~RuleReader() = default;
  // With kPending: looks whether the mask is there. The first mask is begun here.
  virtual State state() = 0;
  // (ceil(V / 32)): bit id % 32 of word id / 32 says whether the id may come next; among them are
  // the ids that end the sequence where the completion may end. At least one may. Of kOpen.
  virtual std::span<const uint32_t> mask() const = 0;
  // Appends these tokens, all of which the masks allow; of kOpen. Returns state().
  virtual State accept(std::span<const int32_t> ids) = 0;
  // The same with one token. False: no other may follow it.
  bool accept(int32_t id) {
    const State now = accept(std::span<const int32_t>(&id, 1));
    return now == State::kOpen || now == State::kPending;
  }
  // The number of these tokens, from the first on, that may come next and have another one follow;
  // appends the mask of what may follow each of them to `masks`. Fewer where finding out would take
  // more than MaskPace::left. The completion stays as it is. Of kOpen.
  virtual size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) = 0;
  // The completion so far is one that the rule allows.
  virtual bool is_whole() const = 0;
};

// Shared by sequences and threads.
class TextRule {
 public:
  virtual ~TextRule() = default;
  // At the beginning of a completion of at most so many tokens. When they run short, the masks lead
  // to an end that is near. pace: nullptr: masks are made at once, whatever they take, and there is
  // no kPending.
  virtual std::unique_ptr<RuleReader> begin(std::vector<int32_t> end_ids, int64_t max_tokens,
                                            std::shared_ptr<MaskPace> pace = {}) const = 0;
};

}  // namespace trireme
