// Constraint on a completion (structured output). A RuleReader follows the completion token by
// token and gives the mask of allowed next tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace trireme {

// Work limit of all rule readers of one thread: bounds the time that the thread spends on their
// masks, and notifies it of masks that other threads have computed.
class MaskPace {
 public:
  explicit MaskPace(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Work left for the readers' thread itself, in nodes of the vocabulary's trie. Only that thread
  // accesses it.
  int64_t left = 0;

  // Notifies the readers' thread that a mask is ready. Any thread.
  void notify() {
    const std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }
  // Ends notifications: `wake` is not called after this returns.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = {};
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
};

// Reads the completion of one sequence. Not thread-safe; does not throw.
class RuleReader {
 public:
  enum class State : uint8_t {
    kOpen,     // further tokens are allowed: mask()
    kEnded,    // no further token is allowed
    kPending,  // another thread computes the mask; MaskPace::notify() follows
    kRefused,  // no memory for the mask
  };
  virtual ~RuleReader() = default;
  // In kPending, checks whether the mask is ready. The first call starts the first mask.
  virtual State state() = 0;
  // (ceil(V / 32)): bit id % 32 of word id / 32: the id is allowed next. Includes the ids that end
  // the sequence where the completion may end. At least one id is allowed. Requires kOpen.
  virtual std::span<const uint32_t> mask() const = 0;
  // Appends tokens, all of which the masks allow. Requires kOpen. Returns state().
  virtual State accept(std::span<const int32_t> ids) = 0;
  // Appends one token. False: no further token may follow, or there is no memory (kRefused).
  bool accept(int32_t id) {
    const State now = accept(std::span<const int32_t>(&id, 1));
    return now == State::kOpen || now == State::kPending;
  }
  // Returns the length of the longest prefix of `ids` whose tokens are allowed in turn, each with a
  // further token allowed after it, and appends the mask after each of them to `masks`. Shorter
  // where the work would exceed MaskPace::left. The completion stays unchanged. Requires kOpen.
  virtual size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) = 0;
  // True if the completion may end here.
  virtual bool is_whole() const = 0;
};

// Rule that several sequences may share. Thread-safe.
class TextRule {
 public:
  virtual ~TextRule() = default;
  // Returns a reader at the start of a completion of at most max_tokens tokens. As tokens run
  // short, the masks allow only continuations that can still end in time. Without a pace every mask
  // is computed synchronously, however long that takes, and kPending does not occur.
  virtual std::unique_ptr<RuleReader> begin(std::vector<int32_t> stop_token_ids, int64_t max_tokens,
                                            std::shared_ptr<MaskPace> pace = {}) const = 0;
};

}  // namespace trireme
