// What a text must be, told token by token: which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme {

// Follows the text of one sequence. On one thread at a time; nothing is thrown.
class RuleReader {
 public:
  virtual ~RuleReader() = default;
  // (ceil(V / 32)): bit id % 32 of word id / 32 says whether the id may come next; among them are the ids that end
  // the sequence where the text may end. At least one may.
  virtual std::span<const uint32_t> mask() const = 0;
  // The text goes on with this token. False: nothing may follow it; then mask() means nothing.
  virtual bool accept(int32_t id) = 0;
  // So many of these tokens, from the first on, may come next and have another one follow; the mask of what may follow
  // each of them is appended to `masks`. The text stays as it is.
  virtual size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) = 0;
  // The text so far is one that the rule allows.
  virtual bool is_whole() const = 0;
};

// Shared by sequences, and by threads.
class TextRule {
 public:
  virtual ~TextRule() = default;
  // At the beginning of a text of at most so many tokens. When they run short, the masks lead to an end that is near.
  virtual std::unique_ptr<RuleReader> begin(std::vector<int32_t> end_ids,
                                            int64_t max_tokens) const = 0;
};

}  // namespace trireme
