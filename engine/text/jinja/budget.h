// Step budget of a rendering, and the error of a template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::jinja {

// Remaining steps of the rendering on this thread: one per visited node, and those that code spends
// before it iterates over elements or bytes, so that a node with much work costs more.
class Budget {
 public:
  explicit Budget(int64_t steps);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  void take(int64_t steps);  // as spend(), of this budget

 private:
  int64_t limit_, left_;
  Budget* before_;
};
// Spends steps of this thread's innermost Budget; fails if it has too few left. Without a Budget
// nothing is counted.
void spend(int64_t steps);
void spend_bytes(size_t bytes);  // one step per 256 bytes, rounded down

// Throws InputError for a template or its input.
[[noreturn]] void fail(const std::string& what);

}  // namespace trireme::jinja
